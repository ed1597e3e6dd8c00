package session_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// lessGranted is a dialer to a server that grants a session less from its second handshake
// on.
func lessGranted(dial zk.Dialer, timeout time.Duration) zk.Dialer {
	handshakes := 0
	return mangle(dial, func(op int32, body []byte) []byte {
		if op != proto.OpCreateSession {
			return nil
		}
		if handshakes++; handshakes == 1 {
			return nil
		}
		return framed(lengthAt(body, 4, uint32(timeout/time.Millisecond)))
	})
}

// A later handshake of the same session grants less. From then on the server lets the
// session live for that alone, so a hold ends by it, though the proof before promised more.
func TestLessGrantedToTheSameSession(t *testing.T) {
	const before, after = 6 * time.Second, 3 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(before)
		cfg.Dialer = lessGranted(cfg.Dialer, after)
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		fixture.Pass(100 * time.Millisecond)
		srv.OnRequest(func(r zktest.Request) zktest.Fault { // no proof any more
			return fixture.Cut(r.Op == zktest.OpMulti, zktest.NoAnswer)
		})
		handshake := time.Now()
		srv.Disconnect()
		fixture.Eventually(t, time.Second, func() bool { return s.State() == session.Connected && s.Timeout() == after })
		require.Equal(t, id, fixture.SessionID(s))
		require.LessOrEqual(t, e.TrustedUntil().Sub(handshake), 2*after/3)
		at, cause := fixture.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.LessOrEqual(t, at.Sub(handshake), 2*after/3)
		require.Greater(t, at.Sub(handshake), after/3, "and no earlier than it has to")
	})
}

// claimOf is a claim of a contender who has looked, and would be granted now.
func claimOf(t *testing.T, s *session.Session) session.Claim {
	t.Helper()
	path, err := s.CreateProtected(t.Context(), "/m", "lock-", nil)
	require.NoError(t, err)
	before := s.Snapshot()
	reading, err := s.StartReadOwn(t.Context(), path)
	require.NoError(t, err)
	n, own, err := reading.Wait(t.Context())
	require.NoError(t, err)
	return session.Claim{Path: path, Token: n.Stat.Czxid, Owner: n.Stat.EphemeralOwner, Own: own, Epoch: before.Epoch}
}

// Close comes between the last look and the grant.
func TestNoGrantOnAClosedSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		s.Abort()
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Zero(t, s.Tables().Holds)
		require.NoError(t, s.Close())
	})
}

// The user closes zk.Conn between the last look and the grant. The server has not executed the request yet.
func TestNoGrantOnceTheUserHasClosedTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		srv.Once(zktest.OpClose, zktest.Fault{Lost: zktest.NoAnswer})
		done := make(chan struct{})
		go func() { // ends after a second, without an answer; joined below
			s.Conn().Close()
			close(done)
		}()
		synctest.Wait()
		require.Len(t, srv.Children("/m"), 1)
		_, err := s.Grant(t.Context(), claim)
		holds := s.Tables().Holds
		<-done
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Zero(t, holds)
		require.NoError(t, s.Close())
	})
}

// An event between the last look and the grant tells that the znode has gone.
func TestNoGrantOfAGoneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		srv.Delete(claim.Path)
		synctest.Wait()
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrContenderLost)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
		require.Zero(t, s.Tables().Holds)
	})
}

// The context of the caller ends between the last look and the grant.
func TestNoGrantAfterTheEndOfTheContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Grant(ctx, claim)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, s.Tables().Holds)
	})
}

// The znode is gone when it is to be proven: the contender joins again, and his caller gets to
// see no error of the server.
func TestProofOfAGoneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		fixture.Untold(srv, func() { srv.Delete(claim.Path) })
		err := s.Prove(t.Context(), claim.Path)
		require.ErrorIs(t, err, zkutil.ErrContenderLost)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
	})
}

// The server refuses the deletion of a znode, and then its session is over: nobody asks for
// that any more, and the new session is idle.
func TestRefusedDeleteEndsWithTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.OperationTimeout = time.Second
		s := fixture.Connect(t, cfg)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == e.Path() {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(t, e.Leave(), zk.ErrNoAuth)
		old := fixture.SessionID(s)
		asked := len(srv.Log.Requests(zktest.OpDelete))
		fixture.Pass(time.Minute)
		require.Greater(t, len(srv.Log.Requests(zktest.OpDelete)), asked, "it goes on while the session lives")
		srv.Expire(old)
		fixture.Eventually(t, 10*time.Second, func() bool { return s.State() == session.Connected && fixture.SessionID(s) != old })
		fixture.Pass(time.Minute)
		over := time.Now()
		fixture.Pass(10 * time.Minute)
		require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpDelete, zktest.OpMulti), over))
	})
}

// The answer to a create is lost, and two znodes carry the uuid: one is the contender's, the
// other one goes.
func TestLostCreateAnswerAndTwoZnodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		srv.DropReply(zktest.OpCreate2, 1)
		twins := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if children := srv.Children("/m"); r.Op == zktest.OpSync && twins == 0 && len(children) == 1 {
				twins++
				srv.Put("/m/"+fixture.TwinOf(children[0], "0000000007"), nil)
				require.Len(t, srv.Children("/m"), 2)
			}
			return zktest.Fault{}
		})
		path, err := s.CreateProtected(t.Context(), "/m", "lock-", nil) // nobody looks at the queue
		require.NoError(t, err)
		require.Equal(t, 1, twins)
		fixture.Eventually(t, time.Second, func() bool { return slices.Equal(srv.Children("/m"), []string{path[len("/m/"):]}) })
	})
}

// A heartbeat waits behind requests that the server takes long for, one after the other:
// their answers show that the line moves, so it is not closed.
func TestAnswersShowThatTheLineMoves(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		srv.Delay(zktest.OpGetData, 300*time.Millisecond)
		fixture.Pass(timeout/6 - 100*time.Millisecond)
		for range 9 { // the heartbeat, in 100 ms, is answered in 2.7 s
			go func() { _ = read(t.Context(), s, "/") }() // ends with its answer
		}
		fixture.Pass(timeout)
		require.Len(t, srv.Dialled(), 1)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}

// The connection is another one when the answer to the listing is looked at: what it says may
// be outdated, so it is no ground for a grant.
func TestReconnectDuringALook(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		q := fixture.MutexOn(s, "/m")
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			if looks++; looks == 1 {
				srv.Disconnect()
				fixture.Pause(2 * time.Second)
				require.Equal(t, session.Connected, s.State())
				require.Len(t, srv.Dialled(), 2)
			}
			return own - 1
		}
		e := fixture.Acquire(t, q)
		require.Equal(t, 2, looks)
		require.NoError(t, e.Leave())
	})
}

// While we are away somebody puts a znode in the place of ours, and the server, who does not
// take the watches back, says nothing about it: on a new connection our own is read again.
func TestOwnZnodeReplacedUntold(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder := fixture.Connect(t, srv.Config(timeout, srv.B))
		waiter, _ := fixture.Adopt(t, srv, timeout) // on server A; its own connection would ask again
		e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
		turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(waiter, "/m"))
		fixture.Pass(time.Second)
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.Once(zktest.OpSetWatches, zktest.Fault{Refusal: zktest.RefuseTimeout})
		srv.Stop(srv.A)
		srv.Delete(own)
		_, err := holder.Conn().Create(own, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NoError(t, e.Leave())
		srv.Restart(srv.A)
		fixture.Pass(2 * time.Second)
		got := <-turn
		require.NoError(t, got.Err)
		require.NotEqual(t, own, got.Entry.Path(), "granted by another's znode")
		require.NoError(t, got.Entry.Leave())
	})
}
