package conformance

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// patience bounds the wait for anything that a server owes: an answer, a handshake, the end
// of a connection.
const patience = 10 * time.Second

var (
	errHungUp = errors.New("the server has closed the connection")
	errSilent = errors.New("the server has not answered")
)

// line is one connection, frame by frame. Its reader goroutine ends with the connection,
// and close joins it.
type line struct {
	conn   net.Conn
	frames chan []byte   // from the server; closed at the end of the connection
	quit   chan struct{} // closed to stop the reader
}

func newLine(conn net.Conn) *line {
	l := &line{conn: conn, frames: make(chan []byte, 64), quit: make(chan struct{})}
	go l.read()
	return l
}

func (l *line) read() {
	defer close(l.frames)
	var length [4]byte
	for {
		if _, err := io.ReadFull(l.conn, length[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > 16<<20 {
			return
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(l.conn, frame); err != nil {
			return
		}
		select {
		case l.frames <- frame:
		case <-l.quit:
			return
		}
	}
}

// write sends bytes unchanged. A hang-up of the server is reported by next.
func (l *line) write(b []byte) {
	_ = l.conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = l.conn.Write(b)
}

// halfCloser is a connection that can be closed in one direction. A pipe can't.
type halfCloser interface{ CloseWrite() error }

// half returns the part of a frame after which the server considers the connection cut: the
// first half, if closeWrite follows, or else an impossible length.
func (l *line) half(frame []byte) []byte {
	if _, ok := l.conn.(halfCloser); ok {
		return frame[:len(frame)/2]
	}
	return []byte{0xff, 0xff, 0xff, 0xff}
}

// closeWrite tells the server that no more data follows.
func (l *line) closeWrite() {
	if c, ok := l.conn.(halfCloser); ok {
		_ = c.CloseWrite()
	}
}

// drain reads until the server hangs up.
func (l *line) drain() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if _, err := l.next(timer.C); errors.Is(err, errHungUp) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// next returns the server's next frame.
func (l *line) next(timeout <-chan time.Time) ([]byte, error) {
	select {
	case frame, ok := <-l.frames:
		if !ok {
			return nil, errHungUp
		}
		return frame, nil
	case <-timeout:
		return nil, errSilent
	}
}

// close cuts the connection and joins its reader.
func (l *line) close() {
	close(l.quit)
	_ = l.conn.Close()
	for range l.frames {
		continue
	}
}
