package wire

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// The tests in this file need no Wire. Each shows one habit of zk.Conn on which the engine rests, listed in the package
// comment. If a test fails with a new version of go-zookeeper, change the code that the package comment names for the habit
// first.

// The steps of a connection, and of the next one. The callback sees the state and the id of the session. zk.Conn closes the first socket at
// any time during the steps of the next one.
func TestConnTakesItsStepsInOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newPeer(t)
		s := p.accept()
		require.Equal(t, []string{
			"init [a:2181]", "next", "StateConnecting", "dial tcp " + chosenServer + " 1s", "StateConnected", "StateHasSession 7", "connected",
		}, p.done())
		start := time.Now()
		s.hangUp()
		p.accept()
		journal := p.done()
		require.Equal(t, start, time.Now(), "without a pause")
		journal = slices.DeleteFunc(journal, func(step string) bool { return step == "close" })
		require.Equal(t, []string{
			"StateDisconnected", "next", "StateConnecting", "dial tcp " + chosenServer + " 1s", "StateConnected", "StateHasSession 7", "connected",
		}, journal)
	})
}

// While the callback runs, zk.Conn neither writes a request nor dials.
func TestConnWaitsForTheCallback(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		entered, mayReturn := make(chan zk.State), make(chan struct{})
		p.setOnEvent(func(e zk.Event) {
			if e.State == zk.StateHasSession || e.State == zk.StateDisconnected {
				entered <- e.State
				<-mayReturn
			}
		})
		s.hangUp()
		require.Equal(p.t, zk.StateDisconnected, <-entered)
		synctest.Wait()
		require.Empty(p.t, p.sockets)
		mayReturn <- struct{}{}
		s, _ = p.greet()
		answer := ask(func() error { return p.Delete("/a", 1) })
		s.send(handshakeFrame(7))
		require.Equal(p.t, zk.StateHasSession, <-entered)
		synctest.Wait()
		require.Len(p.t, s.written(), 1, "the handshake")
		mayReturn <- struct{}{}
		s.send(answerFrame(s.expect(proto.OpDelete), 1, proto.CodeOK))
		require.NoError(p.t, <-answer)
	})
}

// The callback gets every event, although the channel of events is full.
func TestConnCallsBackForEveryEvent(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		const events = 50
		for range events {
			s.send(watchEvent(proto.EventDeleted, "/a", 1))
		}
		require.Equal(p.t, slices.Repeat([]string{"EventNodeDeleted /a <nil>"}, events), p.done())
	})
}

// The handshake is one write, which ends before the first read, and contains zk.Conn's state of its session.
func TestConnWritesTheHandshakeFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newPeer(t)
		s, hello := p.greet()
		require.Equal(t, handshake{TimeoutMS: 40_000, Password: strings.Repeat("\x00", proto.PasswordLength)}, hello)
		require.Len(t, s.written(), 1)
		s.send(handshakeFrame(7))
		s.hangUp()
		_, hello = p.greet()
		require.Equal(t, handshake{TimeoutMS: 4_000, SessionID: 7, Password: "sixteen bytes ok"}, hello)
	})
}

// A failed handshake changes nothing: zk.Conn closes the socket, and asks the next server for the same session.
func TestConnAsksForItsSessionForever(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		s.hangUp()
		for range 5 {
			next, hello := p.greet()
			require.EqualValues(p.t, 7, hello.SessionID)
			require.Equal(p.t, "sixteen bytes ok", hello.Password)
			p.done()
			next.hangUp()
			require.Equal(p.t, []string{"close", "StateDisconnected", "next", "StateConnecting", "dial tcp " + chosenServer + " 1s", "StateConnected"}, p.done())
		}
	})
}

// A session id of 0 in the answer to a handshake ends the session, its watches and zk.Conn's state of it, and is no success for
// the provider.
func TestConnExpiresWithoutASessionID(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		fired := p.watch(s, proto.OpGetData, proto.CodeOK)
		s.hangUp()
		s, hello := p.greet()
		require.EqualValues(p.t, 50, hello.Zxid)
		p.done()
		s.send(expiredAnswer())
		_, hello = p.greet()
		require.Equal(p.t, handshake{TimeoutMS: 4_000, Password: strings.Repeat("\x00", proto.PasswordLength)}, hello)
		require.Equal(p.t, []string{
			"StateExpired", "EventNotWatching /w " + zk.ErrSessionExpired.Error(), "StateDisconnected",
			"next", "StateConnecting", "dial tcp " + chosenServer + " 1s", "StateConnected",
		}, p.done())
		require.Equal(p.t, zk.EventNotWatching, (<-fired).Type)
		require.Zero(p.t, p.SessionID())
	})
}

// zk.Conn sends the zxid of the latest answer to its own requests, if that answer has one.
func TestConnNamesTheZxidOfItsLatestAnswer(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		for _, zxid := range []int64{60, 50, 0} {
			answer := ask(func() error { return p.Delete("/a", 1) })
			s.send(answerFrame(s.expect(proto.OpDelete), zxid, proto.CodeOK))
			require.NoError(p.t, <-answer)
		}
		s.send(watchEvent(proto.EventDeleted, "/a", 70), pingAnswer(80))
		s.hangUp()
		_, hello := p.greet()
		require.EqualValues(p.t, 50, hello.Zxid)
	})
}

// Each request is one write of one frame. The xids are positive and rise.
func TestConnWritesEachFrameAtOnce(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		for range 20 {
			_ = ask(func() error { return p.Delete("/a", 1) })
		}
		last := int32(0)
		for range 20 {
			xid := s.expect(proto.OpDelete)
			require.Positive(p.t, xid)
			last = max(last, xid)
		}
		require.EqualValues(p.t, 20, last)
		for _, frame := range s.written()[1:] {
			require.EqualValues(p.t, len(frame)-4, proto.NewDecoder(frame).Int32())
		}
	})
}

// A connection has one reader and one writer at a time, and both return before the next dial. The peer of each test looks for
// others.
func TestConnHasOneReaderAndOneWriter(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		for range 3 {
			var requests sync.WaitGroup
			for range 20 {
				requests.Go(func() { _ = p.Delete("/a", 1) })
			}
			for range 10 {
				s.send(answerFrame(s.expect(proto.OpDelete), 1, proto.CodeOK))
			}
			s.hangUp() // while the next request is written
			s = p.accept()
			requests.Go(s.drain)
			requests.Go(func() { // the requests that were not written yet
				pass(time.Second)
				s.hangUp()
			})
			requests.Wait()
			s = p.accept()
		}
	})
}

// zk.Conn handles a frame before it reads the next one, so all earlier events precede an answer.
func TestConnActsOnAFrameBeforeTheNext(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		entered, mayReturn := make(chan struct{}), make(chan struct{})
		p.setOnEvent(func(e zk.Event) {
			if e.Type == zk.EventNodeDeleted {
				close(entered)
				<-mayReturn
			}
		})
		answer := ask(func() error { return p.Delete("/a", 1) })
		xid := s.expect(proto.OpDelete)
		go s.send(watchEvent(proto.EventDeleted, "/a", 1), answerFrame(xid, 1, proto.CodeOK))
		<-entered
		synctest.Wait()
		require.Empty(p.t, answer)
		require.Zero(p.t, s.reading.Load())
		close(mayReturn)
		require.NoError(p.t, <-answer)
	})
}

// A frame may arrive in pieces.
func TestConnTakesFramesInPieces(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		fired := p.watch(s, proto.OpGetData, proto.CodeOK)
		for _, b := range watchEvent(proto.EventDeleted, "/w", 1) {
			s.send([]byte{b})
		}
		require.Equal(p.t, zk.EventNodeDeleted, (<-fired).Type)
	})
}

// A frame of up to WithMaxBufferSize passes. A longer one ends the connection before its content is read.
func TestConnReadsUpToTheMaxBufferSize(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		size := 0
		answer := ask(func() error {
			data, _, err := p.Get("/a")
			size = len(data)
			return err
		})
		xid := s.expect(proto.OpGetData)
		s.send(proto.NewEncoder().Raw(answerFrame(xid, 1, proto.CodeOK)[4:]).Buffer(make([]byte, 2<<20)).Stat(zk.Stat{}).Frame())
		require.NoError(p.t, <-answer)
		require.Equal(p.t, 2<<20, size)
		s.send(proto.NewEncoder().Int32(MaxFrame + 1).Body())
		require.Contains(p.t, p.done(), "close")
	})
}

// Answers to pings that zk.Conn did not send change nothing.
func TestConnIgnoresAnswersToForeignPings(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		answer := ask(func() error { return p.Delete("/a", 1) })
		xid := s.expect(proto.OpDelete)
		s.send(pingAnswer(5), pingAnswer(6), answerFrame(xid, 1, proto.CodeOK), pingAnswer(7))
		require.NoError(p.t, <-answer)
		require.Empty(p.t, p.done())
	})
}

// zk.Conn pings every T/3 of the timeout that was granted.
func TestConnPingsEveryThirdOfTheTimeout(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		start := time.Now()
		for i := range 5 {
			xid := s.expect(proto.OpPing)
			require.EqualValues(p.t, proto.XidPing, xid)
			require.WithinDuration(p.t, start.Add(time.Duration(i+1)*grantedTimeout/3), time.Now(), time.Millisecond)
			s.send(pingAnswer(0))
		}
	})
}

// zk.Conn sets a limit of 2T/3 for each frame that it reads, and closes the connection after that.
func TestConnWaitsTwoThirdsOfTheTimeoutForAFrame(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		go s.drain()
		pass(time.Second)
		ofReads, _ := s.limits()
		requireLimits(p.t, ofReads[len(ofReads)-1:], grantedTimeout*2/3)
		s.send(pingAnswer(0), pingAnswer(0))
		ofReads, _ = s.limits()
		requireLimits(p.t, ofReads, 0, grantedTimeout*2/3, 0, grantedTimeout*2/3)
		pass(grantedTimeout*2/3 - time.Millisecond)
		require.Empty(p.t, p.done())
		pass(time.Millisecond)
		require.Contains(p.t, p.done(), "StateDisconnected")
	})
}

// zk.Conn sets a limit of 2T/3 for each frame that it writes.
func TestConnLimitsEachWrite(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		s.limits()
		answer := ask(func() error { return p.Delete("/a", 1) })
		s.send(answerFrame(s.expect(proto.OpDelete), 1, proto.CodeOK))
		require.NoError(p.t, <-answer)
		_, ofWrites := s.limits()
		requireLimits(p.t, ofWrites, grantedTimeout*2/3, 0)
	})
}

// When a connection ends, its requests fail. Unwritten requests stay for the next connection.
func TestConnKeepsUnsentRequests(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		sent := ask(func() error { return p.Delete("/sent", 1) })
		s.expect(proto.OpDelete)
		s.hangUp()
		require.ErrorIs(p.t, <-sent, zk.ErrConnectionClosed)
		s, _ = p.greet()
		unsent := ask(func() error { return p.Delete("/unsent", 1) })
		s.hangUp() // before the handshake is answered
		s = p.accept()
		require.Empty(p.t, unsent)
		s.send(answerFrame(s.expect(proto.OpDelete), 1, proto.CodeOK))
		require.NoError(p.t, <-unsent)
	})
}

// If Next asks for a pause, zk.Conn fails the unsent requests, and dials a second later.
func TestConnPausesForASecondAfterARound(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		mayReturn := p.holdNext()
		s.hangUp()
		synctest.Wait()
		unsent := ask(func() error { return p.Delete("/unsent", 1) })
		synctest.Wait()
		require.Empty(p.t, unsent)
		p.setRoundOver(true)
		start := time.Now()
		close(mayReturn)
		require.ErrorIs(p.t, <-unsent, zk.ErrNoServer)
		require.Equal(p.t, start, time.Now())
		p.setRoundOver(false)
		p.accept()
		require.Equal(p.t, start.Add(time.Second), time.Now())
	})
}

// A zk.Conn that is closed while Next runs ends at once if Next asks for a pause, and so does Close.
func TestConnEndsInAPause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newPeer(t)
		s, _ := p.greet()
		mayReturn := p.holdNext()
		s.hangUp()
		synctest.Wait()
		start := time.Now()
		closed := ask(func() error { p.Close(); return nil })
		synctest.Wait()
		require.Empty(t, closed)
		p.setRoundOver(true)
		close(mayReturn)
		require.NoError(p.t, <-closed)
		p.awaitEnd()
		require.Equal(t, start, time.Now())
		require.Equal(t, "StateDisconnected", last(p.done()))
	})
}

// Close sends a request to end the session, and refuses further requests. With the answer, zk.Conn ends.
func TestConnClosesItsSession(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		start := time.Now()
		closed := ask(func() error { p.Close(); return nil })
		xid := s.expect(proto.OpCloseSession)
		go s.drain() // it may write one more request, which fails even so
		require.ErrorIs(p.t, p.Delete("/a", 1), zk.ErrConnectionClosed)
		synctest.Wait()
		require.Empty(p.t, closed)
		s.send(answerFrame(xid, 9, proto.CodeOK))
		require.NoError(p.t, <-closed)
		p.awaitEnd()
		require.Equal(p.t, start, time.Now())
		require.ElementsMatch(p.t, []string{"close", "StateDisconnected"}, p.done())
		require.Empty(p.t, p.sockets, "no further dial")
	})
}

// Close waits a second for the answer. zk.Conn itself ends with its connection, after which there is no other.
func TestConnCloseWaitsForASecond(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		start := time.Now()
		closed := ask(func() error { p.Close(); return nil })
		s.expect(proto.OpCloseSession)
		require.NoError(p.t, <-closed)
		require.Equal(p.t, start.Add(time.Second), time.Now())
		require.Empty(p.t, p.done())
		s.hangUp()
		p.awaitEnd()
		require.Equal(p.t, start.Add(time.Second), time.Now())
		require.Empty(p.t, p.sockets, "no further dial")
	})
}

// On each connection, zk.Conn first presents the accepted credentials, each after the answer to the previous one. All other
// requests wait.
func TestConnPresentsCredentialsFirst(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		var accepted []credential
		for _, code := range []int32{proto.CodeOK, proto.CodeAuthFailed, proto.CodeOK} {
			answer := ask(func() error { return p.AddAuth("digest", []byte{'a' + byte(len(accepted))}) })
			xid := s.expect(proto.OpAuth)
			require.Positive(p.t, xid)
			if code == proto.CodeOK {
				accepted = append(accepted, credentialOf(last(s.written())))
			}
			s.send(answerFrame(xid, 0, code))
			require.Equal(p.t, errorOf(code), <-answer)
		}
		p.watch(s, proto.OpGetData, proto.CodeOK)
		s.hangUp()
		s, _ = p.greet()
		unsent := ask(func() error { return p.Delete("/a", 1) })
		synctest.Wait()
		s.send(handshakeFrame(7))
		for _, c := range accepted {
			xid := s.expect(proto.OpAuth)
			require.Equal(p.t, c, credentialOf(last(s.written())))
			synctest.Wait()
			require.Zero(p.t, s.writing.Load(), "nothing before the answer")
			s.send(answerFrame(xid, 0, proto.CodeOK))
		}
		s.send(answerFrame(s.expect(proto.OpDelete), 1, proto.CodeOK))
		require.NoError(p.t, <-unsent)
		s.expectSetWatches()
	})
}

// An answer registers the watch that its request asks for, before zk.Conn reads the next frame. After a reconnect, zk.Conn asks for the
// watches again, and names the zxid of its latest answer.
func TestConnRegistersWatches(t *testing.T) {
	for _, op := range []int32{proto.OpGetData, proto.OpExists, proto.OpGetChildren2} {
		for _, code := range []int32{proto.CodeOK, proto.CodeNoNode, proto.CodeNoAuth} {
			habit(t, func(p *peer, s *socket) {
				w := newTestWire(p.t, &testOwner{period: time.Second, patience: time.Minute}, s.Conn)
				line := newMirror(w)
				p.watch(s, op, code)
				xid, _ := line.noteRequest(last(s.written()))
				line.registerWatch(xid, code)
				s.hangUp()
				s = p.accept()
				if len(w.watches) == 0 {
					synctest.Wait()
					require.Zero(p.t, s.writing.Load(), "no watches: %s, %d", proto.OpName(op), code)
					return
				}
				require.Equal(p.t, watchesOf(w), s.expectSetWatches(), "%s, %d", proto.OpName(op), code)
			})
		}
	}
}

// An event uses up the watches that core.FiredBy says, and no others.
func TestConnForgetsWatchesThatFired(t *testing.T) {
	for _, kind := range []int32{proto.EventCreated, proto.EventDeleted, proto.EventDataChanged, proto.EventChildrenChanged} {
		habit(t, func(p *peer, s *socket) {
			w := newTestWire(p.t, &testOwner{period: time.Second, patience: time.Minute}, s.Conn)
			for table, fired := range map[core.WatchKind]<-chan zk.Event{
				core.WatchData:     p.watch(s, proto.OpGetData, proto.CodeOK),
				core.WatchExists:   p.watch(s, proto.OpExists, proto.CodeNoNode),
				core.WatchChildren: p.watch(s, proto.OpGetChildren2, proto.CodeOK),
			} {
				if isFired := slices.Contains(core.FiredBy(kind), table); isFired {
					defer func() { require.Len(p.t, fired, 1, "%s, %d", proto.EventName(kind), table) }()
				} else {
					w.watches[WatchKey{"/w", table}] = struct{}{}
					defer func() { require.Empty(p.t, fired, "%s, %d", proto.EventName(kind), table) }()
				}
			}
			s.send(watchEvent(kind, "/w", 60))
			synctest.Wait()
			s.hangUp()
			s = p.accept()
			if len(w.watches) > 0 {
				require.Equal(p.t, watchesOf(w), s.expectSetWatches(), proto.EventName(kind))
			}
		})
	}
}

// A setWatches that a connection did not send may stay in the queue, ahead of the one for the next connection. Each contains
// the zxid of the latest answer before its connection.
func TestConnMayLeaveSetWatchesInItsQueue(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		answer := ask(func() error { return p.AddAuth("digest", []byte("a")) })
		s.send(answerFrame(s.expect(proto.OpAuth), 0, proto.CodeOK))
		require.NoError(p.t, <-answer)
		p.watch(s, proto.OpGetData, proto.CodeOK)
		s.hangUp()
		s = p.accept()
		s.expect(proto.OpAuth)
		s.hangUp() // without an answer
		s = p.accept()
		s.send(answerFrame(s.expect(proto.OpAuth), 0, proto.CodeOK))
		want := watchRequest{50, []string{"/w"}, []string{}, []string{}}
		require.Equal(p.t, want, s.expectSetWatches())
		synctest.Wait()
		if s.writing.Load() > 0 {
			require.Equal(p.t, want, s.expectSetWatches())
			synctest.Wait()
		}
		require.Zero(p.t, s.writing.Load())
	})
}

// Many watches take several setWatches. All contain the zxid from before the first one, although answers arrive in
// between.
func TestConnBuildsAllSetWatchesAtOnce(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		const long = 100 << 10
		p.watchPath(s, "/"+strings.Repeat("a", long), proto.OpGetData, proto.CodeOK)
		p.watchPath(s, "/"+strings.Repeat("b", long), proto.OpGetData, proto.CodeOK)
		s.hangUp()
		s = p.accept()
		for range 2 {
			w := s.answerSetWatches(60, proto.CodeOK)
			require.EqualValues(p.t, 50, w.Zxid)
			require.Len(p.t, w.Data, 1)
		}
	})
}

// A zk.Conn whose provider fails does not start.
func TestConnDoesNotStartWithoutServers(t *testing.T) {
	_, _, err := zk.Connect([]string{"a"}, askedTimeout, zk.WithHostProvider(noHosts{}), zk.WithLogger(quiet{}))
	require.ErrorIs(t, err, net.ErrClosed) // TestMain finds a goroutine that runs nevertheless
}

// noHosts is a provider that fails.
type noHosts struct{ zk.HostProvider }

func (noHosts) Init([]string) error { return net.ErrClosed }

// The lines of zk.Conn's log about its connection begin with the words that the session filters out, because it logs the same
// itself.
func TestConnLogsItsConnection(t *testing.T) {
	habit(t, func(p *peer, s *socket) {
		p.watch(s, proto.OpGetData, proto.CodeOK)
		s.hangUp()
		s = p.accept()
		s.answerSetWatches(0, proto.CodeNoAuth)
		p.setOver(true)
		s.hangUp()
		pass(time.Second)
		p.setOver(false)
		s, _ = p.greet()
		s.hangUp()
		s, _ = p.greet()
		s.send(expiredAnswer())
		p.accept()
		p.mu.Lock()
		defer p.mu.Unlock()
		slices.Sort(p.logged)
		require.Equal(p.t, []string{
			"Failed to set previous watches: %v", "authentication failed: %s", "failed to connect to %s: %v", "recv loop terminated: %v",
		}, slices.Compact(p.logged))
	})
}

// The package comment names a test for each habit, and these tests all exist.
func TestHabitsAreListed(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of this folder
		require.NoError(t, err)
		tests.Write(text)
	}
	listed := regexp.MustCompile(`\bTest\w+`).FindAllString(string(doc), -1)
	for _, name := range listed {
		require.Contains(t, tests.String(), "\nfunc "+name+"(t ")
	}
	for _, match := range regexp.MustCompile(`\nfunc (TestConn\w+)\(`).FindAllStringSubmatch(tests.String(), -1) {
		require.Contains(t, listed, match[1])
	}
}

// requireLimits requires the given limits, up to the time that the test takes.
func requireLimits(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], float64(time.Millisecond))
	}
}

func last[T any](list []T) T { return list[len(list)-1] }
