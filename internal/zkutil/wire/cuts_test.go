package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// faultyConn is a connection with some faults, which counts what the wire asks of the connection.
type faultyConn struct {
	net.Conn
	failsDeadlines bool
	failsWrites    bool
	hiccup         atomic.Bool // the next read that would block fails once
	writes, closes atomic.Int32
	readLimit      atomic.Pointer[time.Time] // the latest SetReadDeadline
}

var errFault = errors.New("a fault of the connection")

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.hiccup.CompareAndSwap(true, false) {
		return 0, errFault
	}
	return n, err
}

func (c *faultyConn) Write(p []byte) (int, error) {
	if c.writes.Add(1); c.failsWrites {
		return 0, errFault
	}
	return c.Conn.Write(p)
}

func (c *faultyConn) Close() error {
	c.closes.Add(1)
	return c.Conn.Close()
}

func (c *faultyConn) SetDeadline(t time.Time) error {
	if c.failsDeadlines {
		return errFault
	}
	return c.Conn.SetDeadline(t)
}

func (c *faultyConn) SetReadDeadline(t time.Time) error {
	c.readLimit.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

// dialFaulty is dialScript over a connection with faults.
func dialFaulty(t *testing.T) (*script, *faultyConn) {
	t.Helper()
	client, server := net.Pipe()
	conn, o := &faultyConn{Conn: client}, &testOwner{period: time.Second, patience: time.Minute}
	return dialAgain(t, newTestWire(t, o, conn), o, server), conn
}

// abandonInFlight sends requests, of which the last is a write, and abandons the line when zk.Conn has read what arrived.
func (s *script) abandonInFlight(arrived []byte, ops ...int32) *lateOwner {
	s.t.Helper()
	late := &lateOwner{testOwner: s.owner}
	s.wire.owner = late
	for _, op := range ops {
		s.request(op, "/"+strconv.Itoa(int(op)))
		s.next()
	}
	s.deliver(arrived)
	synctest.Wait()
	s.Abandon()
	require.ErrorIs(s.t, <-s.ended, errAbandoned)
	_ = s.Close()
	return late
}

// A server that hangs up within an answer, or answers less than a header, did not confirm the write. The missing bytes must not be
// taken for zeros, because a zero is the code of a success.
func TestTruncatedAnswersProveNothing(t *testing.T) {
	deleted := answerFrame(firstXid, 9, proto.CodeOK)
	checked := proto.NewEncoder().Raw(answerFrame(firstXid, 9, 0)[4:]).Int32(proto.OpCheck).Bool(false).Int32(0).Int32(-1).Bool(true).Int32(-1).Frame()
	type test struct {
		op    int32
		frame []byte
	}
	var tests []test
	for n := range deleted {
		tests = append(tests, test{proto.OpDelete, deleted[:n]})
	}
	for n := range len(deleted) + 4 { // the first operation in the body tells whether the Multi was refused
		tests = append(tests, test{proto.OpMulti, checked[:n]})
	}
	for n := range proto.HeaderSize - 4 {
		short := proto.NewEncoder().Raw(deleted[4 : 4+n]).Frame()
		tests = append(tests, test{proto.OpDelete, append(short, make([]byte, 20)...)})
	}
	tests = append(tests, test{proto.OpMulti, append(slices.Clone(deleted), make([]byte, 20)...)}) // without a body
	for _, test := range tests {
		testkit.Bubble(t, func(t *testing.T) {
			s := openScript(t)
			late := s.abandonInFlight(nil, test.op)
			_, _ = s.server.Write(test.frame)
			_ = s.server.Close()
			synctest.Wait()
			require.Zero(t, late.count(), "%x", test.frame)
			require.Empty(t, s.wire.abandoned)
			s.wire.Close()
		})
	}
}

// The line is abandoned after any number of bytes. What zk.Conn's reader has left is read to the end, and the write that the server
// confirms counts exactly once, as an answer or as a late proof.
func TestAbandonAfterEveryByte(t *testing.T) {
	ops := []int32{proto.OpGetData, proto.OpDelete}
	own := dataAnswer(firstXid, []byte("data"))
	stream := slices.Concat(
		eventFrame(proto.EventDeleted, "/own"), eventFrame(proto.EventDeleted, "/user"), answerFrame(proto.XidPing, 1, proto.CodeOK),
		dataFrame(5, 2), own, answerFrame(6, 3, proto.CodeNoNode), answerFrame(firstXid-1, 10, proto.CodeOK))
	for n := range stream {
		testkit.Bubble(t, func(t *testing.T) {
			s := openScript(t)
			s.wire.watches[WatchKey{"/user", core.WatchData}] = struct{}{}
			pass(settlingTime)
			go func() {
				s.conn(requestFrame(5, proto.OpGetData, "/user", false))
				s.conn(requestFrame(6, proto.OpGetData, "/none", false))
			}()
			s.next()
			s.next()
			late := s.abandonInFlight(stream[:n], ops...)
			s.deliver(stream[n:])
			synctest.Wait()
			proofs := late.count()
			for _, a := range s.answer.all() {
				if a.path == "/2" && a.Err == nil {
					proofs++
				}
			}
			require.Equal(t, 1, proofs, "after %d of %d bytes", n, len(stream))
			require.Len(t, s.answer.all(), len(ops))
			require.Empty(t, s.wire.abandoned)
			s.wire.Close()
		})
	}
}

// An answer is held back, because zk.Conn may still have to set watches, when the line is abandoned. Its frame was not begun, so the
// next one is found behind it.
func TestAbandonWhileAnAnswerIsHeldBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		go s.conn(requestFrame(5, proto.OpGetData, "/user", false))
		s.next()
		start := time.Now()
		late := s.abandonInFlight(dataFrame(5, 9), proto.OpDelete)
		s.deliver(answerFrame(firstXid, 10, proto.CodeOK))
		synctest.Wait()
		require.Equal(t, 1, late.count())
		require.Empty(t, s.read, "the answer is lost")
		require.Zero(t, time.Since(start))
		s.wire.Close()
	})
}

// A read that fails within a frame ends an abandoned line, even if the next read succeeds: its bytes may look like a header.
func TestAbandonedLineEndsWithTheFirstFailedRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, conn := dialFaulty(t)
		s.open()
		frame := dataAnswer(firstXid, make([]byte, 40<<10))
		late := s.abandonInFlight(frame[:30<<10], proto.OpGetData, proto.OpDelete)
		conn.hiccup.Store(true)
		s.deliver(frame[30<<10 : 31<<10])
		_, _ = s.server.Write(answerFrame(firstXid-1, 10, proto.CodeOK))
		synctest.Wait()
		require.Zero(t, late.count())
		require.Empty(t, s.wire.abandoned)
		s.wire.Close()
	})
}

// A wire that is closed does not wait for the answers on an abandoned line.
func TestCloseEndsAbandonedLines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		late := s.abandonInFlight(nil, proto.OpDelete)
		synctest.Wait()
		start := time.Now()
		s.wire.Close()
		require.Zero(t, time.Since(start))
		require.Zero(t, late.count())
	})
}

// zk.Conn's reader may end after a later proof dropped the line. The socket then gets no new time. A line is handed over once.
func TestDroppedLineIsNotHandedOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, conn := dialFaulty(t)
		go s.deliver(handshakeFrame(7))
		_, err := readWhole(s.Line)
		require.NoError(t, err)
		s.request(proto.OpDelete, "/1")
		s.next()
		s.Abandon()
		s.wire.DropAbandoned(time.Now())
		for range 2 {
			_, err = s.Read(make([]byte, 1))
			require.ErrorIs(t, err, errAbandoned)
		}
		require.Equal(t, time.Unix(1, 0), *conn.readLimit.Load())
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.abandonInFlight(nil, proto.OpDelete)
		s.handOver()
		s.wire.Close()
	})
}

// zk.Conn sets a deadline before each write. On an abandoned line that deadline lets nothing pass.
func TestNothingIsWrittenToAnAbandonedLine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, conn := dialFaulty(t)
		s.open()
		s.request(proto.OpDelete, "/1")
		s.next()
		s.Abandon()
		require.NoError(t, s.SetWriteDeadline(time.Now().Add(time.Hour)))
		writes := conn.writes.Load()
		s.conn(requestFrame(5, proto.OpGetData, "/user", false))
		require.Equal(t, writes, conn.writes.Load())
		s.wire.Close()
	})
}

// A line that zk.Conn reads ends at the last whole frame, wherever the server hangs up, and nothing is made of the rest.
func TestHangUpAfterEveryByte(t *testing.T) {
	frames := map[string][]byte{
		"a handshake":         handshakeFrame(8),
		"an event":            eventFrame(proto.EventDeleted, "/own"),
		"an event of zk.Conn": eventFrame(proto.EventDeleted, "/user"),
		"an answer":           dataFrame(5, 2),
		"a refusal":           answerFrame(5, 2, proto.CodeNoNode),
		"an own answer":       dataAnswer(firstXid, []byte("data")),
	}
	for name, frame := range frames {
		for n := range frame {
			before := handshakeFrame(7)
			if name == "a handshake" {
				before = nil
			}
			l, o := newLineReading(t, slices.Concat(before, frame[:n]))
			l.wire.watches[WatchKey{"/user", core.WatchData}] = struct{}{}
			_ = l.contact.sendRequest(5, proto.OpGetData, sendNothing)
			given := &answers{}
			_, _ = l.contact.sendInTurn([]sentFrame{ownFrame(firstXid, proto.OpGetData, receiver{given, "/1"})}, sendNothing)
			_, err := io.ReadAll(l)
			require.NoError(t, err, "%s of %d bytes", name, n)
			_ = l.Close()
			require.Equal(t, []error{zk.ErrConnectionClosed}, given.errs(), "%s of %d bytes", name, n)
			require.Empty(t, o.events)
			require.Len(t, l.wire.watches, 1)
			require.Equal(t, before != nil, l.isOpen())
		}
	}
}

// A request was given up when its line was closed. An answer that arrived before is not delivered a second time.
func TestAnswersAfterCloseAreIgnored(t *testing.T) {
	l, _ := newLineReading(t, slices.Concat(handshakeFrame(7), dataAnswer(firstXid, []byte("data")), answerFrame(proto.XidPing, 0, proto.CodeOK)))
	_, err := io.ReadFull(l, make([]byte, len(handshakeFrame(7))))
	require.NoError(t, err)
	given := &answers{}
	_, _ = l.contact.sendInTurn([]sentFrame{ownFrame(firstXid, proto.OpGetData, receiver{given, "/1"})}, sendNothing)
	_ = l.Close()
	_, err = io.ReadAll(l)
	require.NoError(t, err)
	require.Equal(t, []error{zk.ErrConnectionClosed}, given.errs())
}

// A request that the writer took before the line was given up was not sent, and ends with the line.
func TestRequestsBehindTheEndAreUnsent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, conn := dialFaulty(t)
		s.open()
		synctest.Wait()
		writes := conn.writes.Load()
		require.Empty(t, s.contact.giveUp())
		s.ask("/1", "/2")
		synctest.Wait()
		require.Equal(t, []error{zk.ErrNoServer, zk.ErrNoServer}, s.answer.errs())
		require.Equal(t, writes, conn.writes.Load())
		require.ErrorIs(t, s.Failure(), net.ErrClosed)
		s.wire.Close()
	})
}

// A connection whose handshake can't be bounded is not used.
func TestDialRefusesConnectionsWithoutDeadlines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		conn := &faultyConn{Conn: client, failsDeadlines: true}
		w := newTestWire(t, &testOwner{period: time.Second, patience: time.Minute}, conn)
		_, err := w.Dial("tcp", "a:1", 0)
		require.ErrorIs(t, err, errFault)
		require.EqualValues(t, 1, conn.closes.Load())
		require.Nil(t, w.Line())
	})
}

// A wire that is closed starts no task, because Close waits for the tasks just once.
func TestClosedWireStartsNoTask(t *testing.T) {
	w := newTestWire(t, &testOwner{}, nil)
	w.Close()
	isStarted := false
	w.mu.Lock()
	w.goLocked(func() { isStarted = true })
	w.mu.Unlock()
	w.tasks.Wait()
	require.False(t, isStarted)
}

// The handshake has a deadline of its own. zk.Conn's deadlines replace it afterwards.
func TestDeadlinesOfTheHandshake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: 3 * time.Second})
		start := time.Now()
		require.NoError(t, s.SetReadDeadline(start.Add(time.Second)))
		require.NoError(t, s.SetWriteDeadline(start.Add(time.Second)))
		_, err := s.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: 3 * time.Second})
		go s.deliver(handshakeFrame(7))
		_, err := readWhole(s.Line)
		require.NoError(t, err)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Hour)))
		go func() { _, _ = io.Copy(io.Discard, s.server) }() // pings
		start := time.Now()
		_, err = s.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(start))
		s.wire.Close()
	})
}
