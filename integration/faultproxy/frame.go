package faultproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

const (
	lengthSize = 4
	// maxFrame rejects what is no ZooKeeper frame, such as a four-letter word read as a length.
	maxFrame = 64 << 20
)

// frame is one length-prefixed message, the length included.
type frame struct {
	bytes []byte
	read  time.Time
}

func readFrame(r io.Reader) (frame, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("faultproxy: frame of %d bytes", n)
	}
	b := make([]byte, lengthSize+n)
	copy(b, length[:])
	if _, err := io.ReadFull(r, b[lengthSize:]); err != nil {
		return frame{}, err
	}
	return frame{bytes: b, read: time.Now()}, nil
}

func (f frame) body() []byte { return f.bytes[lengthSize:] }

// sessionOf returns the session id of a connect response: protocol version, timeout, id, password.
func sessionOf(response []byte) int64 {
	d := proto.NewDecoder(response)
	d.Int32()
	d.Int32()
	return d.Int64()
}
