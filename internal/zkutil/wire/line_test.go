package wire

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// A watch of the engine's own can't be removed at the server while zk.Conn has, or asked for, a watch that the server does not
// distinguish from it.
func TestWhichWatchesAreShared(t *testing.T) {
	data, exists, children := proto.OpGetData, proto.OpExists, proto.OpGetChildren2
	for own, shared := range map[core.WatchKind][]int{core.WatchData: {data, exists}, core.WatchExists: {data, exists}, core.WatchChildren: {children}} {
		for _, op := range []int{data, exists, children} {
			want := op == shared[0] || op == shared[len(shared)-1]
			l, _ := newLineReading(t, nil)
			key := WatchKey{"/a", own}
			require.False(t, l.HasConnWatch(key))
			_, _ = l.noteRequest(requestFrame(4, int32(op), "/a", false))
			_, _ = l.noteRequest(requestFrame(5, int32(op), "/a/b", true))
			_, _ = l.noteRequest(setWatches)
			require.False(t, l.HasConnWatch(key))
			_, _ = l.noteRequest(requestFrame(6, int32(op), "/a", true))
			require.Equal(t, want, l.HasConnWatch(key), "asked for")
			l.registerWatch(6, proto.CodeNoAuth)
			require.False(t, l.HasConnWatch(key), "refused")
			_, _ = l.noteRequest(requestFrame(7, int32(op), "/a", true))
			l.registerWatch(5, proto.CodeOK)
			l.registerWatch(7, proto.CodeOK)
			require.Equal(t, want, l.HasConnWatch(key), "registered")
			l.forgetFired(proto.EventDeleted, "/a")
			require.False(t, l.HasConnWatch(key))
			_, _ = l.noteRequest(requestFrame(8, proto.OpAddWatch, "/", false))
			require.True(t, l.HasConnWatch(key), "a watch of an unknown kind")
		}
	}
}

// A session of a server that shows an empty password ends with its connection. The wire answers zk.Conn's next handshake itself, and
// sends nothing, because the server would open another session.
func TestBoundSessionEndsWithItsConnection(t *testing.T) {
	bound := proto.NewEncoder().Int32(0).Int32(4000).Int64(7).Buffer(make([]byte, proto.PasswordLength)).Frame()
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
		go s.readAll()
		s.deliver(bound)
		require.Equal(t, bound, <-s.read)
		require.True(t, s.wire.IsBound())

		s.conn(pingFrame())
		s.requireHeldBack() // without holds
		s.wire.SetHolding(true)
		go s.conn(pingFrame())
		_, op, _ := s.next()
		require.EqualValues(t, proto.OpPing, op)
		s.wire.SetHolding(false)
		_ = s.Close()

		client, server := net.Pipe()
		conn := &faultyConn{Conn: client}
		s.owner.conn = conn
		next := dialAgain(t, s.wire, s.owner, server)
		next.conn(connectFrame(1, 7))
		require.EqualValues(t, 1, conn.closes.Load())
		require.Zero(t, conn.writes.Load())
		frame, err := readWhole(next.Line)
		require.NoError(t, err)
		require.Equal(t, expiredAnswer(), frame)
		require.NoError(t, s.owner.failure)

		next = next.redial()
		go next.readAll()
		go next.conn(connectFrame(0, 0))
		_, err = readWhole(next.server)
		require.NoError(t, err)
		next.deliver(handshakeFrame(8))
		<-next.read
		require.False(t, s.wire.IsBound(), "the new session is that of another server")
		s.wire.Close()
	})
}

// zk.Conn waits for a lost answer to a credential as long as the server answers pings. The line waits for 2T.
func TestCredentialsTakeTwoTimeoutsAtMost(t *testing.T) {
	for _, isPresented := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			const limit = 2 * 4 * time.Second
			s := openScript(t)
			s.present(1, "a:a", 0)
			s = s.reconnect()
			s.ask("/1")
			start := time.Now()
			go func() { _, _ = io.Copy(io.Discard, s.server) }()
			pass(limit - 1)
			if isPresented {
				s.conn(credentialFrame(2, "a:a"))
				pass(limit)
				require.Empty(t, s.ended)
				require.Empty(t, s.answer.all())
			} else {
				require.Error(t, <-s.ended)
				require.Equal(t, limit, time.Since(start))
				require.ErrorIs(t, s.Failure(), errCredentials)
				require.Equal(t, []error{zk.ErrNoServer}, s.answer.errs())
			}
			s.wire.Close()
		})
	}
}

// A failure names the server by its name and address, or the address of the connection if the user's dialer resolves the name.
func TestPeerOfAFailure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
		_ = s.server.Close()
		_, err := s.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.ErrorContains(t, s.owner.failure, "handshake with pipe: ")
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		o := &testOwner{period: time.Second, patience: time.Minute}
		client, server := net.Pipe()
		w := New(t.Context(), dial.Config{Network: dial.Network{
			LookupHost:  func(context.Context, string) ([]string, error) { return []string{"10.0.0.1"}, nil },
			DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		}}, o)
		require.NoError(t, w.Dialer.Provider().Init([]string{"zk1:2181"}))
		synctest.Wait()
		name, _ := w.Dialer.Provider().Next()
		conn, err := w.Dial("tcp", name, 0)
		require.NoError(t, err)
		_ = server.Close()
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.ErrorContains(t, o.failure, "handshake with zk1/10.0.0.1:2181: ")
		w.Close()
	})
}

// Only the server's confirmation of zk.Conn's own request ends the session.
func TestWhatEndsTheSession(t *testing.T) {
	for name, test := range map[string]struct {
		xid, code int32
		isEnded   bool
	}{
		"confirmed":       {8, proto.CodeOK, true},
		"refused":         {8, proto.CodeSessionExpired, false},
		"another request": {7, proto.CodeOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				go func() {
					s.conn(requestFrame(7, proto.OpDelete, "/a", false))
					s.conn(proto.NewEncoder().Int32(8).Int32(proto.OpCloseSession).Frame())
				}()
				s.next()
				_, err := readWhole(s.server)
				require.NoError(t, err)
				s.deliver(answerFrame(test.xid, 9, test.code))
				<-s.read
				require.Equal(t, test.isEnded, s.wire.IsSessionEnded())
				s.wire.Close()
				_, err = s.wire.Dial("tcp", "a:1", 0)
				require.ErrorIs(t, err, net.ErrClosed)
			})
		})
	}
}

// The first failure of a line counts. The line of a server that left the ensemble is abandoned with that reason.
func TestReasonOfAFailure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		require.NoError(t, s.Failure())
		require.False(t, s.HasLeft())
		s.Leave()
		require.Error(t, <-s.ended)
		s.failWith(errExpired)
		require.ErrorIs(t, s.Failure(), errHasLeft)
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		_ = s.server.Close()
		require.ErrorIs(t, <-s.ended, io.EOF)
		require.ErrorIs(t, s.Failure(), io.EOF)
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.request(proto.OpDelete, "/1")
		s.next()
		s.deliver(answerFrame(firstXid, 0, proto.CodeLoginRequired))
		_ = s.server.Close()
		require.Error(t, <-s.ended)
		require.ErrorIs(t, s.Failure(), errLoginRequired)
		s.wire.Close()
	})
}

// The buffer for a long answer is kept for the next one, unless it is too large.
func TestBufferOfAnAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		for i, test := range []struct{ size, kept int }{{maxSpare, maxSpare}, {20 << 10, maxSpare}, {maxSpare + 1, 0}, {20 << 10, 20 << 10}} {
			s.ask("/1")
			xid, _, _ := s.next()
			s.deliver(dataAnswer(xid, make([]byte, test.size-len(dataAnswer(xid, nil)))), answerFrame(proto.XidPing, 1, proto.CodeOK))
			<-s.read
			require.Len(t, s.answer.all(), i+1)
			require.NoError(t, s.answer.errs()[i])
			require.GreaterOrEqual(t, cap(s.body), test.kept)
			require.Equal(t, test.kept == 0, s.body == nil)
		}
		s.wire.Close()
	})
}

// An answer without an error whose body is malformed ends the line. A refusal has no body.
func TestMalformedAnswersToTheConn(t *testing.T) {
	short := dataFrame(5, 2)[4 : 4+16+4+67]
	for name, test := range map[string]struct {
		frame []byte
		isOK  bool
	}{
		"data":              {dataFrame(5, 2), true},
		"half a stat":       {proto.NewEncoder().Raw(short).Frame(), false},
		"no body":           {answerFrame(5, 2, proto.CodeOK), false},
		"a refusal":         {answerFrame(5, 2, proto.CodeNoNode), true},
		"an unknown answer": {answerFrame(9, 2, proto.CodeOK), true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				pass(settlingTime)
				go s.conn(requestFrame(5, proto.OpGetData, "/user", false))
				s.next()
				s.deliver(test.frame)
				synctest.Wait()
				require.Equal(t, test.isOK, len(s.read) == 1)
				if !test.isOK {
					require.ErrorIs(t, <-s.ended, errMalformed)
					require.ErrorIs(t, s.Failure(), errMalformed)
					require.ErrorIs(t, s.owner.failure, errMalformed)
				}
				s.wire.Close()
			})
		})
	}
}

// The facts of a line tell when bytes arrived, a write was answered, and what is in flight.
func TestFactsOfALine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newTestWire(t, &testOwner{}, nil)
		var f core.Facts
		w.AddTo(&f)
		require.Zero(t, f, "before the first line")
		s := openScript(t)
		s.beQuiet()
		start := time.Now()
		s.ask("/1")
		xid, op, _ := s.next()
		require.EqualValues(t, proto.OpPing, op, "after a quiet time")
		require.EqualValues(t, proto.XidPing, xid)
		xid, _, _ = s.next()
		s.wire.AddTo(&f)
		require.Equal(t, start, f.ReadSentAt)
		require.False(t, f.IsAwaitingWrite)
		pass(100 * time.Millisecond)
		s.deliver(dataAnswer(xid, nil)[:30])
		pass(100 * time.Millisecond)
		s.deliver(dataAnswer(xid, nil)[30:])
		synctest.Wait()
		s.wire.AddTo(&f)
		require.Equal(t, start.Add(200*time.Millisecond), f.BytesCameAt)
		s.request(proto.OpDelete, "/2")
		xid, _, _ = s.next()
		s.wire.AddTo(&f)
		require.Equal(t, start.Add(200*time.Millisecond), f.WriteSentAt)
		require.True(t, f.IsAwaitingWrite)
		pass(100 * time.Millisecond)
		s.deliver(answerFrame(xid, 9, proto.CodeNoNode))
		synctest.Wait()
		s.wire.AddTo(&f)
		require.Equal(t, start.Add(300*time.Millisecond), f.WriteAnsweredAt)
		s.wire.Close()
	})
}

// Answers say when their request was sent, whether an earlier one may be the reason of a failure, and whether a write was served
// without a transaction.
func TestWhatAnswersTell(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		start := time.Now()
		s.request(proto.OpDelete, "/1", "/2", "/3", "/4")
		for range 4 {
			s.next()
		}
		pass(time.Second)
		s.deliver(answerFrame(firstXid, 9, proto.CodeOK), answerFrame(firstXid-1, 9, proto.CodeOK))
		synctest.Wait()
		_ = s.Close()
		got := s.answer.all()
		require.Len(t, got, 4)
		for i, a := range got {
			require.Equal(t, start, a.SentAt)
			require.Equal(t, -1, a.Refused)
			require.Equal(t, i == 3, a.IsBehind)
			require.Equal(t, i > 1, a.Err != nil)
		}
		require.EqualValues(t, 9, got[0].Zxid)
		s.wire.Close()
	})
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.request(proto.OpDelete, "/1")
		s.next()
		s.deliver(answerFrame(firstXid, 9, proto.CodeOK))
		synctest.Wait()
		s.request(proto.OpDelete, "/2")
		s.next()
		s.deliver(answerFrame(firstXid-1, 9, proto.CodeOK)) // the same zxid
		synctest.Wait()
		require.False(t, s.answer.all()[0].IsUncommitted)
		require.True(t, s.answer.all()[1].IsUncommitted)
		require.Equal(t, []error{nil, nil}, s.answer.errs())
		s.request(proto.OpGetData, string(make([]byte, maxRequest)))
		require.Equal(t, zk.ErrShortBuffer, s.answer.errs()[2])
		require.Equal(t, -1, s.answer.all()[2].Refused)
		s.wire.Close()
	})
}

// The first write of a resumed session follows a ping, and is no transaction if the server was behind the zxid of the handshake. A new session
// needs neither.
func TestFirstWriteOfASession(t *testing.T) {
	for _, isResumed := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
			var id int64
			if isResumed {
				id = 7
			}
			go s.conn(connectFrame(50, id))
			_, err := readWhole(s.server)
			require.NoError(t, err)
			go s.readAll()
			s.deliver(handshakeFrame(7))
			<-s.read
			pass(settlingTime)
			s.request(proto.OpDelete, "/1")
			if isResumed {
				_, op, _ := s.next()
				require.EqualValues(t, proto.OpPing, op)
				s.deliver(answerFrame(proto.XidPing, 50, proto.CodeOK))
			}
			xid, op, _ := s.next()
			require.EqualValues(t, proto.OpDelete, op)
			s.deliver(answerFrame(xid, 50, proto.CodeOK))
			synctest.Wait()
			require.Len(t, s.answer.all(), 1)
			require.Equal(t, isResumed, s.answer.all()[0].IsUncommitted)
			s.wire.Close()
		})
	}
}

// Connections that end soon are replaced more and more slowly, unless they served a write.
func TestUsefulConnectionsAreReplacedAtOnce(t *testing.T) {
	for op, isUseful := range map[int32]bool{proto.OpDelete: true, proto.OpSync: false} {
		testkit.Bubble(t, func(t *testing.T) {
			o := &testOwner{period: time.Second, patience: time.Minute}
			w := newTestWire(t, o, nil)
			hosts := w.Dialer.Provider()
			require.NoError(t, hosts.Init([]string{"a:1"}))
			start := time.Now()
			for range 5 {
				hosts.Next()
				client, server := net.Pipe()
				o.conn = client
				s := dialAgain(t, w, o, server)
				s.open()
				hosts.Connected()
				s.request(op, "/1")
				xid, _, _ := s.next()
				s.deliver(proto.NewEncoder().Raw(answerFrame(xid, 9, proto.CodeOK)[4:]).String("/1").Frame())
				synctest.Wait()
				require.Equal(t, []error{nil}, s.answer.errs())
				_ = s.Close()
			}
			require.Equal(t, isUseful, time.Since(start) == 0, "%v", time.Since(start))
			w.Close()
		})
	}
}

// A wire that is closed during a dial does not use the connection.
func TestWireClosedDuringADial(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		conn := &faultyConn{Conn: client}
		var w *Wire
		w = New(t.Context(), dial.Config{Dialer: func(string, string, time.Duration) (net.Conn, error) {
			w.Close()
			return conn, nil
		}}, &testOwner{period: time.Second, patience: time.Minute})
		l, err := w.Dial("tcp", "a:1", 0)
		require.ErrorIs(t, err, net.ErrClosed)
		require.Nil(t, l)
		require.EqualValues(t, 1, conn.closes.Load())
		require.Nil(t, w.Line())
	})
}
