package reliability_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	shortTimeout = calm            // granted by one follower
	longTimeout  = 3 * calm        // granted by the other servers
	usualTick    = 2 * time.Second // followers report their sessions to the leader every half tick
)

// TestSessionShortenedByAnAbandonedServer requires that a lease ends before the next grant, although the leader expires the
// session by the shorter timeout of a follower that the client left. The follower's next report has the session once more.
func TestSessionShortenedByAnAbandonedServer(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, ensemble.Config{
		Nodes: 3, TickTime: usualTick, Properties: map[string]string{"minSessionTimeout": inMilliseconds(longTimeout)},
	})
	ctx := bounded(t, 5*longTimeout)
	leader, follower := theLeader(ctx, t, e, 0), aFollower(ctx, t, e, 0)
	require.NoError(t, e.Configure(ctx, follower, map[string]string{
		"minSessionTimeout": "", "maxSessionTimeout": inMilliseconds(shortTimeout),
	}))
	require.NoError(t, e.RollingRestart(ctx, nil, follower))

	m := startMover(ctx, t, e, leader, follower)
	moves := 1
	for ; !m.isShortenedAfterMove(ctx, t); moves++ {
		require.NoError(t, context.Cause(m.lease.Context()), "the lease has ended")
	}
	trusted := m.lease.TrustedUntil().Sub(m.wroteAt)
	lost, next := m.loss(ctx, t)
	untilLoss, untilGrant := lost.Sub(m.wroteAt), next.at.Sub(m.wroteAt)
	t.Logf("%d moves; after the latest write: trusted for %v, lost after %v, granted after %v",
		moves, rounded(trusted), rounded(untilLoss), rounded(untilGrant))
	require.Less(t, untilLoss, untilGrant, "the grant came before the loss")
	require.Less(t, untilGrant, longTimeout*2/3, "the leader expired the session by another timeout")

	m.toLeader.Release()
	require.ErrorIs(t, m.lease.Release(), recipes.ErrSessionLost)
	require.NoError(t, next.lease.Release())
	m.empty(ctx, t)
}

func inMilliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// mover is a pair whose holder a test moves between two servers.
type mover struct {
	*pair

	leader               string // the address of the leader itself
	toLeader, toFollower *faultproxy.Proxy
	other                *mutex.InterProcessMutex // of the holder, which no client awaits
	session              int64                    // of the holder
	wroteAt              time.Time                // when the holder began its latest write
}

// startMover returns a holder that is connected to the leader, and a waiter.
func startMover(ctx context.Context, t *testing.T, e *ensemble.Ensemble, leader, follower int) *mover {
	t.Helper()
	m := &mover{leader: e.Server(leader), toLeader: faultproxy.New(t, e.Server(leader)), toFollower: faultproxy.New(t, e.Server(follower))}
	m.toFollower.Refuse(true)
	holding := dial(t, longTimeout, []string{m.toLeader.Addr(), m.toFollower.Addr()})
	m.pair, m.session = newPair(t, holding, dial(t, longTimeout, []string{m.leader})), holding.Conn().SessionID()
	var err error
	m.other, err = mutex.New(holding, m.path+"-other")
	require.NoError(t, err)
	m.lease = granted(ctx, t, acquireAfter(ctx, m.first, 0)).lease
	m.lost = endOf(m.lease)
	m.done = acquireAfter(ctx, m.second, 0)
	testkit.Eventually(t, func() bool {
		queue, err := m.second.Participants(ctx)
		return err == nil && len(queue) == 2
	}, "the waiter's znode")
	return m
}

// isShortenedAfterMove moves the holder to the follower and back to the leader, where it writes, and silences its lines.
// isShortenedAfterMove reports whether the leader then moved the expiry to an earlier time. The leader does not if the move took
// longer than the half tick between two reports of the follower. In that case the lines are open again.
func (m *mover) isShortenedAfterMove(ctx context.Context, t *testing.T) bool {
	t.Helper()
	m.move(t, m.toLeader, m.toFollower, shortTimeout)
	before, _ := m.expiry(ctx, t)
	testkit.Eventually(t, func() bool { // and then half a tick is left; the reports that every server sends of a new session are over
		at, ok := m.expiry(ctx, t)
		return ok && at.After(before)
	}, "a report")
	_, _, err := m.holding.Conn().Exists(m.path) // lists the session in the next report
	require.NoError(t, err)
	m.move(t, m.toFollower, m.toLeader, longTimeout)
	m.wroteAt = time.Now()
	write := granted(ctx, t, acquireAfter(ctx, m.other, 0))
	require.NoError(t, write.lease.Release())
	m.toLeader.Hold()
	for silentAt := time.Now(); time.Since(silentAt) < usualTick*3/4; pass(ctx, usualTick/100) {
		if at, ok := m.expiry(ctx, t); ok && time.Until(at) < (shortTimeout+longTimeout)/2 {
			return true
		}
	}
	m.toLeader.Release()
	return false
}

// move makes the holder leave one server for the other, and waits until the session has the other's timeout.
func (m *mover) move(t *testing.T, from, to *faultproxy.Proxy, timeout time.Duration) {
	t.Helper()
	to.Refuse(false)
	from.Refuse(true)
	from.Cut()
	testkit.Eventually(t, func() bool {
		return m.holding.State() == recipes.Connected && m.holding.Conn().Server() == to.Addr() && m.holding.SessionTimeout() == timeout
	}, "connected to the other server")
	require.Equal(t, m.session, m.holding.Conn().SessionID())
}

// expiry returns when the leader lets the holder's session expire, to the second. ok is false while the leader changes it.
func (m *mover) expiry(ctx context.Context, t *testing.T) (at time.Time, ok bool) {
	t.Helper()
	dump, err := zkadmin.FourLetter(ctx, m.leader, "dump")
	require.NoError(t, err)
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		if _, date, ok := strings.Cut(line, " expire at "); ok {
			at, err = time.Parse(time.UnixDate, strings.TrimSuffix(date, ":"))
			require.NoError(t, err)
		} else if line == fmt.Sprintf("%#x", uint64(m.session)) {
			return at, true
		}
	}
	return time.Time{}, false
}
