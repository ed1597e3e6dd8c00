package zkutil

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
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
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(before)
		cfg.Dialer = lessGranted(cfg.Dialer, after)
		s := connect(t, cfg)
		id := sessionID(s)
		e := acquire(t, mutexOn(s, "/m"))
		pass(100 * time.Millisecond)
		srv.onRequest(func(r zktest.Request) zktest.Fault { // no proof any more
			return cut(r.Op == zktest.OpMulti, zktest.NoAnswer)
		})
		handshake := time.Now()
		srv.Disconnect()
		eventually(t, time.Second, func() bool { return s.State() == Connected && s.Timeout() == after })
		require.Equal(t, id, sessionID(s))
		require.LessOrEqual(t, e.TrustedUntil().Sub(handshake), 2*after/3)
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.LessOrEqual(t, at.Sub(handshake), 2*after/3)
		require.Greater(t, at.Sub(handshake), after/3, "and no earlier than it has to")
	})
}

// placeOf is a contender who has looked, and would be granted now.
func placeOf(t *testing.T, s *Session, dir string) *place {
	t.Helper()
	p, err := mutexOn(s, dir).join(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.look(t.Context()))
	require.Empty(t, p.blocker)
	return p
}

// Close comes between the last look and the grant.
func TestNoGrantOnAClosedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		p := placeOf(t, s, "/m")
		s.abort()
		_, err := p.grant(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Empty(t, s.holds)
		require.NoError(t, s.Close())
	})
}

// The znode is gone when it is to be proven: the contender joins again, and his caller gets to
// see no error of the server.
func TestProofOfAGoneZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		p := placeOf(t, s, "/m")
		untold(srv, func() { srv.Delete(p.path) })
		err := p.prove(t.Context())
		require.ErrorIs(t, err, errPlaceLost)
		require.ErrorIs(t, err, ErrNodeDeleted)
	})
}

// The server refuses the deletion of a znode, and then its session is over: nobody asks for
// that any more, and the new session is idle.
func TestRefusedDeleteEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(6 * time.Second)
		cfg.OperationTimeout = time.Second
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == e.Path() {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(t, e.Leave(), zk.ErrNoAuth)
		old := sessionID(s)
		asked := len(srv.log.Requests(zktest.OpDelete))
		pass(time.Minute)
		require.Greater(t, len(srv.log.Requests(zktest.OpDelete)), asked, "it goes on while the session lives")
		srv.Expire(old)
		eventually(t, 10*time.Second, func() bool { return s.State() == Connected && sessionID(s) != old })
		pass(time.Minute)
		over := time.Now()
		pass(10 * time.Minute)
		require.Empty(t, times(srv.log.Requests(zktest.OpDelete, zktest.OpMulti), over))
	})
}

// The answer to a create is lost, and two znodes carry the uuid: one is the contender's, the
// other one goes.
func TestLostCreateAnswerAndTwoZnodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Put("/m", nil)
		srv.DropReply(zktest.OpCreate, 1)
		twins := 0
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if children := srv.Children("/m"); r.Op == zktest.OpSync && twins == 0 && len(children) == 1 {
				twins++
				srv.Put("/m/"+twinOf(children[0], "0000000007"), nil)
				require.Len(t, srv.Children("/m"), 2)
			}
			return zktest.Fault{}
		})
		path, err := s.createProtected(t.Context(), "/m", "lock-", nil) // nobody looks at the queue
		require.NoError(t, err)
		require.Equal(t, 1, twins)
		eventually(t, time.Second, func() bool { return slices.Equal(srv.Children("/m"), []string{path[len("/m/"):]}) })
	})
}

// A heartbeat waits behind requests that the server takes long for, one after the other:
// their answers show that the line moves, so it is not closed.
func TestAnswersShowThatTheLineMoves(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(timeout))
		e := acquire(t, mutexOn(s, "/m"))
		srv.Delay(zktest.OpGetData, 300*time.Millisecond)
		pass(timeout/6 - 100*time.Millisecond)
		for range 9 { // the heartbeat, in 100 ms, is answered in 2.7 s
			go func() { _ = read(t.Context(), s) }() // ends with its answer
		}
		pass(timeout)
		require.Len(t, srv.dialled(), 1)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}

// The connection is another one when the answer to the listing is looked at: what it says may
// be outdated, so it is no ground for a grant.
func TestReconnectDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		q := mutexOn(s, "/m")
		p, err := q.join(t.Context())
		require.NoError(t, err)
		key := listerKey{q.Dir, q.Prefix}
		s.mu.Lock()
		s.listers[key] = nil // another listing is under way: ours is the next one
		s.mu.Unlock()
		looked := make(chan error, 1)
		go func() { looked <- p.lookOnce(t.Context()) }() // joined below
		pass(100 * time.Millisecond)
		s.mu.Lock()
		shared := s.listers[key]
		delete(s.listers, key)
		s.mu.Unlock()
		require.NotNil(t, shared)
		srv.Disconnect()
		eventually(t, time.Second, func() bool { return s.State() == Connected && len(srv.dialled()) == 2 })
		shared.queue = []Contender{p.self}
		close(shared.done)
		require.NoError(t, <-looked)
		_, err = p.grant(t.Context())
		require.ErrorIs(t, err, errStale)
		require.NoError(t, p.look(t.Context()))
		e, err := p.grant(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.Leave())
	})
}

// While we are away somebody puts a znode in the place of ours, and the server, who does not
// take the watches back, says nothing about it: on a new connection our own is read again.
func TestOwnZnodeReplacedUntold(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		holder := connect(t, srv.config(timeout, srv.b))
		waiter, _ := adopt(t, srv, timeout) // on server A; its own connection would ask again
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		pass(time.Second)
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.once(zktest.OpSetWatches, zktest.Fault{Refusal: zktest.RefuseTimeout})
		srv.Stop(srv.a)
		srv.Delete(own)
		_, err := holder.Conn().Create(own, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NoError(t, e.Leave())
		srv.Restart(srv.a)
		pass(2 * time.Second)
		got := <-turn
		require.NoError(t, got.err)
		require.NotEqual(t, own, got.entry.Path(), "granted by another's znode")
		require.NoError(t, got.entry.Leave())
	})
}
