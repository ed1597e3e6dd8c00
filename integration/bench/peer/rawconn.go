package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

const (
	// firstXid counts down. Servers answer such numbers as any other; zk.Conn never uses them.
	firstXid     = -1001
	pingInterval = SessionTimeout / 3
	frameBuffer  = 64 << 10
)

var errRawClosed = errors.New("peer: the socket is closed")

// rawConn is a socket with a session. Requests of one call go out in one flush; a reader hands out answers and events.
type rawConn struct {
	conn   net.Conn
	reader *bufio.Reader
	done   chan struct{}  // closed by the reader at its end
	stop   chan struct{}  // closed by Close
	work   sync.WaitGroup // the reader and the pinger; joined by Close

	mu      sync.Mutex
	xid     int32                      // guarded by mu
	calls   map[int32]chan<- rawReply  // guarded by mu; nil after the end of the reader
	watches map[string][]chan<- string // guarded by mu; by path
}

type rawReply struct {
	code int32
	body []byte
}

// rawRequest is a request without its xid.
type rawRequest struct {
	op   int32
	body []byte
}

func dialRaw(ctx context.Context, address string) (*rawConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &rawConn{
		conn: conn, reader: bufio.NewReaderSize(conn, frameBuffer), xid: firstXid, done: make(chan struct{}), stop: make(chan struct{}),
		calls: map[int32]chan<- rawReply{}, watches: map[string][]chan<- string{},
	}
	if err := c.handshake(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.work.Go(c.read) // ends when the socket is closed
	c.work.Go(c.ping) // ends with Close
	return c, nil
}

func (c *rawConn) handshake() error {
	request := proto.NewEncoder().Int32(0).Int64(0).Int32(int32(SessionTimeout.Milliseconds())).Int64(0).
		Buffer(make([]byte, proto.PasswordLength)).Bool(false)
	if _, err := c.conn.Write(request.Frame()); err != nil {
		return err
	}
	answer, err := c.frame()
	if err != nil {
		return err
	}
	d := proto.NewDecoder(answer)
	d.Int32()
	if d.Int32() <= 0 || d.Err() != nil {
		return errors.New("peer: the server refuses the session")
	}
	return nil
}

func (c *rawConn) frame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(c.reader, length[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(c.reader, body)
	return body, err
}

// send writes requests in one flush. Each answer arrives on its own channel.
func (c *rawConn) send(requests ...rawRequest) ([]<-chan rawReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return nil, errRawClosed
	}
	var flush []byte
	answers := make([]<-chan rawReply, len(requests))
	for i, r := range requests {
		answer := make(chan rawReply, 1)
		c.calls[c.xid], answers[i] = answer, answer
		flush = append(flush, proto.NewEncoder().Int32(c.xid).Int32(r.op).Raw(r.body).Frame()...)
		c.xid--
	}
	_, err := c.conn.Write(flush)
	return answers, err
}

// receive waits for an answer and returns its body.
func (c *rawConn) receive(answer <-chan rawReply) (*proto.Decoder, int32, error) {
	reply, ok := <-answer
	if !ok {
		return nil, 0, errRawClosed
	}
	return proto.NewDecoder(reply.body), reply.code, nil
}

// call is send and receive for one request that must succeed.
func (c *rawConn) call(op int32, body []byte) error {
	answers, err := c.send(rawRequest{op, body})
	if err != nil {
		return err
	}
	_, code, err := c.receive(answers[0])
	if err == nil && code != proto.CodeOK {
		err = fmt.Errorf("peer: %s: %s", proto.OpName(op), proto.CodeName(code))
	}
	return err
}

func (c *rawConn) read() {
	defer c.end()
	for {
		frame, err := c.frame()
		if err != nil {
			return
		}
		d := proto.NewDecoder(frame)
		xid := d.Int32()
		d.Int64()
		code := d.Int32()
		body := frame[len(frame)-d.Len():]
		c.mu.Lock()
		if xid == proto.XidEvent {
			d.Int32()
			d.Int32()
			path := d.String()
			for _, waiter := range c.watches[path] {
				waiter <- path // has room for one
			}
			delete(c.watches, path)
		} else if answer := c.calls[xid]; answer != nil {
			delete(c.calls, xid)
			answer <- rawReply{code, body}
		}
		c.mu.Unlock()
	}
}

// end fails all that waits.
func (c *rawConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answer := range c.calls {
		close(answer)
	}
	for _, waiters := range c.watches {
		for _, waiter := range waiters {
			close(waiter)
		}
	}
	c.calls, c.watches = nil, nil
	close(c.done)
}

func (c *rawConn) ping() {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	frame := proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Frame()
	for {
		select {
		case <-tick.C:
			c.mu.Lock()
			_, _ = c.conn.Write(frame) // the reader sees a broken socket
			c.mu.Unlock()
		case <-c.stop:
			return
		}
	}
}

// Close ends the session.
func (c *rawConn) Close() error {
	err := c.call(proto.OpCloseSession, nil)
	close(c.stop)
	err = errors.Join(err, c.conn.Close())
	c.work.Wait()
	return err
}

// watch sends the next event on a path to a buffered channel.
func (c *rawConn) watch(path string, waiter chan<- string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches == nil {
		return errRawClosed
	}
	c.watches[path] = append(c.watches[path], waiter)
	return nil
}

func (c *rawConn) unwatch(path string, waiter chan<- string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[path] = slices.DeleteFunc(c.watches[path], func(w chan<- string) bool { return w == waiter })
	if len(c.watches[path]) == 0 {
		delete(c.watches, path)
	}
}
