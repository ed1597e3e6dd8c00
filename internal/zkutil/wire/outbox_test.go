package wire

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// countingConn counts writes.
type countingConn struct {
	net.Conn
	writes atomic.Int32
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// Requests that are sent together, or during a write, are sent in one write, in order.
func TestRequestsLeaveTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		writes := &countingConn{Conn: s.Conn}
		s.Conn = writes
		s.ask("/1", "/2", "/3") // its write blocks until the server reads
		synctest.Wait()
		s.ask("/4")
		s.ask("/5", "/6")
		for i := range 6 {
			xid, op, path := s.next()
			require.Equal(t, int32(firstXid-i), xid)
			require.Equal(t, int32(proto.OpGetData), op)
			require.Equal(t, fmt.Sprintf("/%d", i+1), path)
		}
		require.EqualValues(t, 2, writes.writes.Load())
		s.wire.Close()
		require.Equal(t, []string{"/1", "/2", "/3", "/4", "/5", "/6"}, s.answer.paths())
	})
}

// Each request gets one answer, however the line ends. Only a request of which no byte was written gets
// zk.ErrNoServer.
func TestOneAnswerInEveryCase(t *testing.T) {
	closed, unsent := zk.ErrConnectionClosed, zk.ErrNoServer
	for name, test := range map[string]struct {
		end  func(s *script)
		want []error // of /1, /2…
	}{
		"closed before they are written": {func(s *script) { s.contact.writing <- struct{}{}; s.ask("/1", "/2"); synctest.Wait(); _ = s.Close() }, []error{unsent, unsent}},
		"closed in a write":              {func(s *script) { s.ask("/1", "/2"); synctest.Wait(); s.ask("/3"); _ = s.Close() }, []error{unsent, closed, closed}},
		"closed when they are written":   {func(s *script) { s.ask("/1", "/2"); s.next(); s.next(); _ = s.Close() }, []error{closed, closed}},
		"sent after the end":             {func(s *script) { _ = s.Close(); s.ask("/1", "/2") }, []error{unsent, unsent}},
		"a write fails":                  {func(s *script) { s.Conn = brokenConn{s.Conn}; s.ask("/1"); synctest.Wait(); s.ask("/2") }, []error{closed, unsent}},
		"the server hangs up": {func(s *script) {
			s.ask("/1")
			s.next()
			_ = s.server.Close()
			require.Error(s.t, <-s.ended)
			_ = s.Close()
		}, []error{closed}},
		"half an answer": {func(s *script) {
			s.ask("/1", "/2")
			s.next()
			s.next()
			s.deliver(dataFrame(firstXid, 1)[:30])
			synctest.Wait()
			_ = s.server.Close()
			require.Error(s.t, <-s.ended)
			_ = s.Close()
		}, []error{closed, closed}},
		"abandoned in a write": {func(s *script) {
			s.request(proto.OpDelete, "/1")
			synctest.Wait()
			s.ask("/2")
			s.Abandon()
			require.Error(s.t, <-s.ended)
			_ = s.Close()
		}, []error{unsent, closed}},
		"abandoned with a write in flight": {func(s *script) {
			s.request(proto.OpDelete, "/1")
			s.next()
			s.ask("/2")
			s.next()
			s.Abandon()
			s.ask("/3")
			require.Error(s.t, <-s.ended)
			_ = s.Close()
		}, []error{unsent, closed, closed}},
		"abandoned without a write in flight": {func(s *script) { s.ask("/1"); s.next(); s.Abandon() }, []error{closed}},
		"the wire is closed":                  {func(s *script) { s.ask("/1"); s.next(); s.wire.Close(); s.ask("/2") }, []error{closed, unsent}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				test.end(s)
				synctest.Wait()
				require.ElementsMatch(t, test.want, s.answer.errs())
				for _, n := range s.answer.all() {
					require.Equal(t, -1, n.Refused)
				}
				_ = s.Close()
				_ = s.server.Close()
				select {
				case <-s.contact.writing:
				default:
				}
				s.wire.Close()
				require.Len(t, s.answer.all(), len(test.want), "each gets one answer")
			})
		})
	}
}

// brokenConn fails to write.
type brokenConn struct{ net.Conn }

func (brokenConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Requests on a line that never opens were not sent.
func TestRequestsBeforeTheHandshake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
		s.ask("/1")
		synctest.Wait()
		require.Empty(t, s.answer.all())
		_ = s.Close()
		require.Equal(t, []error{zk.ErrNoServer}, s.answer.errs())
	})
}

// The server answers that the session expired. zk.Conn does not close that connection; the next dial does.
func TestRequestsOnTheConnectionOfAnExpiredSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
		go s.readAll()
		s.deliver(handshakeFrame(0))
		<-s.read
		s.ask("/1")
		synctest.Wait()
		require.Empty(t, s.answer.all())
		s.redial()
		require.Equal(t, []error{zk.ErrNoServer}, s.answer.errs())
		require.Error(t, <-s.ended)
	})
}

// stuckConn is a connection of a user's dialer whose writes return only when the test allows, even after a close.
type stuckConn struct {
	net.Conn
	release chan struct{}
}

func (c stuckConn) Write([]byte) (int, error) { <-c.release; return 0, net.ErrClosed }

// A write of zk.Conn's never returns, not even when the line is closed. Requests behind it get their answers.
func TestRequestsBehindAStuckWriteOfTheConn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		stuck := stuckConn{s.Conn, make(chan struct{})}
		s.Conn = stuck
		go func() { _, _ = s.Write(requestFrame(1, proto.OpGetData, "/user", false)) }()
		synctest.Wait()
		s.ask("/1", "/2")
		synctest.Wait()
		_ = s.Close()
		require.Equal(t, []error{zk.ErrNoServer, zk.ErrNoServer}, s.answer.errs())
		close(stuck.release)
		require.Error(t, <-s.ended)
	})
}

// A request that is longer than zk.Conn's buffer would end the connection, again and again. It is refused as by zk.Conn.
func TestOverlongRequest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		to := receiver{s.answer, "/long"}
		s.Send(&Request{Op: proto.OpGetData, Path: "/1", To: receiver{s.answer, "/1"}},
			&Request{Op: proto.OpSetData, Path: "/long", Data: make([]byte, maxRequest), To: to},
			&Request{Op: proto.OpGetData, Path: "/2", To: receiver{s.answer, "/2"}})
		require.Equal(t, []error{zk.ErrShortBuffer}, s.answer.errs())
		for _, want := range []string{"/1", "/2"} {
			_, _, path := s.next()
			require.Equal(t, want, path)
		}
		s.wire.Close()
		require.Equal(t, []string{"/long", "/1", "/2"}, s.answer.paths())
	})
}

// answerDeletes is a server that answers n deletes, and then stops reading.
func (s *script) answerDeletes(n int) {
	for range n {
		frame, err := readWhole(s.server)
		if err != nil {
			return
		}
		xid := proto.NewDecoder(frame[4:]).Int32()
		if _, err := s.server.Write(answerFrame(xid, int64(-xid), proto.CodeOK)); err != nil {
			return
		}
	}
}

// endAsConn ends the line like zk.Conn, which closes it when its reader ends.
func (s *script) endAsConn(abandon bool) {
	if abandon {
		s.Abandon()
		require.Error(s.t, <-s.ended)
	}
	_ = s.Close()
}

// Many goroutines send while the line ends: each request gets one answer.
func TestManySendersWhileTheLineEnds(t *testing.T) {
	const senders, each = 2000, 3
	for _, abandon := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			s := openScript(t)
			go s.answerDeletes(senders)
			var all sync.WaitGroup
			for i := range senders {
				all.Go(func() {
					for n := range each {
						s.request(proto.OpDelete, fmt.Sprintf("/%d/%d", i, n))
					}
				})
				if i == senders/2 {
					all.Go(func() { s.endAsConn(abandon) })
				}
			}
			all.Wait()
			synctest.Wait()
			_ = s.server.Close()
			s.wire.Close()
			paths := s.answer.paths()
			require.Len(t, paths, senders*each)
			slices.Sort(paths)
			require.Len(t, slices.Compact(paths), senders*each, "one answer each")
		})
	}
}

// After the least number the xids begin anew.
func TestXidsBeginAnew(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const least = -1 << 31
		s := openScript(t)
		s.out.xid = least + 1
		s.ask("/1", "/2", "/3")
		for _, want := range []int32{least, firstXid, firstXid - 1} {
			xid, _, _ := s.next()
			require.Equal(t, want, xid)
			require.True(t, isOwnXid(xid))
			s.deliver(dataFrame(xid, 1))
		}
		synctest.Wait()
		require.Equal(t, []error{nil, nil, nil}, s.answer.errs())
		s.wire.Close()
	})
}
