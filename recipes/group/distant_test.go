package group_test

import (
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// distant is an option of a client whose requests reach the server after a latency, in order, however many are in flight.
func distant(srv *zktest.Server, latency time.Duration) recipes.Option {
	dial := srv.Dialer()
	return recipes.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		d := &distantConn{Conn: conn, latency: latency, sent: make(chan sentBytes, 1<<12), closed: make(chan struct{})}
		go d.deliver() // ends with Close
		return d, nil
	})
}

type distantConn struct {
	net.Conn

	latency time.Duration
	sent    chan sentBytes
	close   sync.Once
	closed  chan struct{}
}

type sentBytes struct {
	dueAt time.Time
	bytes []byte
}

func (d *distantConn) Write(b []byte) (int, error) {
	select {
	case d.sent <- sentBytes{time.Now().Add(d.latency), append([]byte(nil), b...)}:
		return len(b), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *distantConn) Close() error {
	d.close.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

func (d *distantConn) deliver() {
	for {
		select {
		case s := <-d.sent:
			bubble.Pause(time.Until(s.dueAt))
			if _, err := d.Conn.Write(s.bytes); err != nil {
				return
			}
		case <-d.closed:
			return
		}
	}
}
