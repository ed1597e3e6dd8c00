package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// manyServers is large enough that a disconnected client is in a handshake at any instant, because it pauses for a
// second after each round of its servers.
const manyServers = 8

// cutOff is a client that got a lock and was partitioned, until an offset from the
// deadline.
type cutOff struct {
	srv      *zktest.Server
	client   *recipes.Client
	lease    *recipes.Lease
	session  int64
	deadline time.Time
	end      <-chan time.Time // of the lease
}

// The answers to slow operations take 3 ms once the line is back.
func newCutOff(t *testing.T, timeout, offset time.Duration, slow ...zktest.Op) cutOff {
	t.Helper()
	srv := zktest.NewServer(t, zktest.WithServers(manyServers), zktest.WithTickTime(time.Millisecond))
	writes := noteWrites(srv)
	client := testclient.Connect(t, srv, recipes.WithSessionTimeout(timeout))
	lease := bubble.Acquire(t, locks.MutexOn(t, client, locks.Path).Acquire)
	c := cutOff{srv: srv, client: client, lease: lease, session: client.Conn().SessionID(), end: locks.EndOf(lease)}
	bubble.Pass(timeout / 4)
	c.deadline = writes.of(client).Add(timeout * 2 / 3)
	require.Equal(t, c.deadline, lease.TrustedUntil())
	srv.Partition(c.session)
	time.Sleep(time.Until(c.deadline.Add(offset))) //nolint:forbidigo // virtual time
	for _, op := range slow {
		srv.Delay(op, 3*time.Millisecond)
	}
	srv.Heal()
	synctest.Wait()
	return c
}

// isLost checks that the lease ended at the deadline, although the session lives, and
// left nothing.
func (c cutOff) isLost(t *testing.T) {
	t.Helper()
	require.Equal(t, c.deadline, <-c.end)
	require.ErrorIs(t, context.Cause(c.lease.Context()), recipes.ErrSessionLost)
	require.Equal(t, c.deadline, c.lease.TrustedUntil())
	require.Empty(t, c.srv.Children(locks.Path), "the lost lease's znode, once the session is back")
	session, alive := c.srv.Session(c.client.Conn().SessionID())
	require.True(t, alive)
	require.Equal(t, c.session, session.ID)
	require.Empty(t, session.Ephemerals)
	require.ErrorIs(t, c.lease.Release(), recipes.ErrSessionLost)
}

// The connection is restored before the deadline, even by a nanosecond. The lease stays valid, with its token, and
// the deadline moves on.
func TestReconnectJustBeforeTheDeadline(t *testing.T) {
	for _, timeout := range timeouts {
		for _, early := range []time.Duration{time.Nanosecond, time.Millisecond, timeout / 100} {
			testkit.Bubble(t, func(t *testing.T) {
				c := newCutOff(t, timeout, -early)
				token := c.lease.FencingToken()
				require.NoError(t, c.lease.Context().Err(), "T = %v, %v early", timeout, early)
				require.Equal(t, c.deadline.Add(timeout*2/3-early), c.lease.TrustedUntil())
				bubble.Pass(3 * timeout)
				require.NoError(t, c.lease.Context().Err())
				require.Equal(t, token, c.lease.FencingToken())
				require.Equal(t, c.session, c.client.Conn().SessionID())
				require.Len(t, c.srv.Children(locks.Path), 1)
				require.NoError(t, c.lease.Release())
				require.Empty(t, c.srv.Children(locks.Path))
			})
		}
	}
}

// The connection is restored after the deadline, even by a nanosecond. The lease is lost, and the same session can
// acquire the lock again.
func TestReconnectJustAfterTheDeadline(t *testing.T) {
	for _, timeout := range timeouts {
		for _, late := range []time.Duration{time.Nanosecond, time.Millisecond, timeout / 100} {
			testkit.Bubble(t, func(t *testing.T) {
				c := newCutOff(t, timeout, late)
				c.isLost(t)
				next := bubble.Acquire(t, locks.MutexOn(t, c.client, locks.Path).Acquire)
				require.Greater(t, next.FencingToken(), c.lease.FencingToken())
				require.NoError(t, next.Release())
				require.Equal(t, c.session, c.client.Conn().SessionID())
			})
		}
	}
}

// The connection is restored in time, and the server commits the heartbeat, but its answer arrives after the
// deadline. No lease can rely on it.
func TestLateProof(t *testing.T) {
	for _, timeout := range timeouts {
		testkit.Bubble(t, func(t *testing.T) {
			c := newCutOff(t, timeout, -2*time.Millisecond, zktest.OpMulti)
			require.NoError(t, c.lease.Context().Err())
			bubble.Pass(4 * time.Millisecond)
			c.isLost(t)
		})
	}
}

// At the same instant either may be first, but they agree. A valid lease has its znode, a lost one has none.
func TestReconnectAtTheDeadline(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		testkit.Bubble(t, func(t *testing.T) {
			c := newCutOff(t, time.Second, 0)
			if c.lease.Context().Err() == nil {
				require.Len(t, c.srv.Children(locks.Path), 1)
				require.Equal(t, c.deadline.Add(time.Second*2/3), c.lease.TrustedUntil())
				require.NoError(t, c.lease.Release())
				require.Empty(t, c.srv.Children(locks.Path))
			} else {
				c.isLost(t)
			}
		})
	}
}
