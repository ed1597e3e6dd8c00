package edges_test

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"time"
)

// lines are the sockets that a client opened through its dialer, for a test to cut, with the data sent on them.
type lines struct {
	mu   sync.Mutex // protects what is below
	open []net.Conn
	up   bytes.Buffer
}

func (l *lines) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn)
	return tapped{conn, l}, nil
}

// cut ends them.
func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open = nil
}

// sent is the data that the network saw.
func (l *lines) sent() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.up.Bytes())
}

// tapped is a connection whose lines listen in.
type tapped struct {
	net.Conn

	lines *lines
}

func (t tapped) Write(p []byte) (int, error) {
	t.lines.mu.Lock()
	t.lines.up.Write(p)
	t.lines.mu.Unlock()
	return t.Conn.Write(p)
}
