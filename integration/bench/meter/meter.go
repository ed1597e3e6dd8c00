package meter

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// pieceSize is the size of a read. One flush of a client is read in one piece.
const pieceSize = 64 << 10

// Meter stands between clients and a server. All methods may be called from any goroutine.
type Meter struct {
	upstream string
	listener net.Listener
	tally    tally
	work     sync.WaitGroup // the accept loop and two goroutines for each connection; joined by Close

	mu     sync.Mutex
	closed bool              // guarded by mu
	conns  map[net.Conn]bool // guarded by mu; both ends of every connection
}

// Start listens on a free port of the loopback interface for a server.
func Start(upstream string) (*Meter, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	m := &Meter{upstream: upstream, listener: listener, conns: map[net.Conn]bool{}}
	m.work.Go(m.accept) // ends when Close closes the listener
	return m, nil
}

// Addr is the address for clients.
func (m *Meter) Addr() string { return m.listener.Addr().String() }

// Counts returns the traffic so far.
func (m *Meter) Counts() Counts { return m.tally.snapshot() }

// Reset begins to count anew.
func (m *Meter) Reset() { m.tally.reset() }

// Cut closes all connections. New ones can be made at once.
func (m *Meter) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.conns {
		conn.Close()
	}
}

// Close ends all connections and joins every goroutine of the meter.
func (m *Meter) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.listener.Close()
	m.Cut()
	m.work.Wait()
}

func (m *Meter) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.work.Go(func() { m.carry(client) }) // ends when either end is closed
	}
}

// carry passes data on until one side closes the connection, or Cut or Close does.
func (m *Meter) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", m.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	if !m.add(client, server) {
		return
	}
	defer m.remove(client, server)
	l := &line{tally: &m.tally}
	var down sync.WaitGroup
	down.Go(func() {
		copyPieces(client, server, l.received)
		client.Close() // ends the other direction
	})
	copyPieces(server, client, l.sent)
	server.Close()
	down.Wait()
}

func copyPieces(to io.Writer, from io.Reader, count func([]byte)) {
	piece := make([]byte, pieceSize)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			count(piece[:n])
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (m *Meter) add(conns ...net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	for _, conn := range conns {
		m.conns[conn] = true
	}
	return true
}

func (m *Meter) remove(conns ...net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range conns {
		delete(m.conns, conn)
	}
}
