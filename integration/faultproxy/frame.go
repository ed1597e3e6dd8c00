package faultproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

const (
	lengthSize = 4
	// maxFrame rejects what is no ZooKeeper frame, such as a four-letter word read as a length.
	maxFrame = 64 << 20

	xidWatchEvent = -1
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

// scanner reads jute fields one after another. Once a field is not all there, the rest reads as zero.
type scanner struct{ rest []byte }

func (s *scanner) take(n int) []byte {
	if n < 0 || n > len(s.rest) {
		s.rest = nil
		return nil
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scanner) int32() int32 {
	if b := s.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (s *scanner) int64() int64 {
	if b := s.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (s *scanner) bool() bool {
	b := s.take(1)
	return b != nil && b[0] != 0
}

// buffer reads a byte string, which a length of -1 says is absent.
func (s *scanner) buffer() []byte {
	n := s.int32()
	if n < 0 {
		return nil
	}
	return s.take(int(n))
}

func (s *scanner) string() string { return string(s.buffer()) }

// sessionOf returns the session id of a connect response: protocol version, timeout, id, password.
func sessionOf(response []byte) int64 {
	s := scanner{response}
	s.int32()
	s.int32()
	return s.int64()
}
