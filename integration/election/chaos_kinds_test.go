package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// kind is a way to force a change of leadership.
type kind struct {
	name   string
	times  int
	cause  error // of the old term's end, unless the machine was too busy
	excuse judge.Excuse
	force  func(ctx context.Context, t *testing.T, f *fixture, old *seenTerm)
}

var kinds = []kind{
	{"closed", 105, recipes.ErrReleased, judge.None, closeLeader},
	{"client closed", 25, recipes.ErrClosed, judge.None, closeClient},
	{"released", 130, recipes.ErrReleased, judge.None, release},
	{"partitioned", 14, recipes.ErrSessionLost, judge.None, partition},
	{"successor partitioned", 6, recipes.ErrReleased, judge.None, partitionSuccessor},
	{"session expired", 85, recipes.ErrSessionLost, judge.SessionExpired, expire}, // or ErrNodeDeleted, if that event was first
	{"znode deleted", 90, recipes.ErrNodeDeleted, judge.ZnodeDeleted, deleteZnode},
	{"parent wiped", 45, recipes.ErrNodeDeleted, judge.ZnodeDeleted, wipe},
}

// closeLeader puts another participant into the leader's place.
func closeLeader(_ context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	require.NoError(t, old.by.Close())
	f.enter(t, old.by)
}

func closeClient(_ context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	require.NoError(t, old.by.group.client.Close())
	f.open(t, old.by.group)
}

// release lets the leader stand again.
func release(_ context.Context, _ *testing.T, f *fixture, old *seenTerm) {
	interrupted, ok := old.by.participant.(interface{ InterruptLeadership() })
	if ok && f.random.IntN(2) == 0 {
		interrupted.InterruptLeadership()
		return
	}
	_ = old.lease.Release() // may be over already
}

// cuts are the ways to take a line away.
var cuts = []struct {
	cut func(*faultproxy.Proxy)
	// The server still gets the session's pings, and would grant the lock to no other client.
	heard bool
}{
	{(*faultproxy.Proxy).Hold, false},
	{(*faultproxy.Proxy).HoldUp, false},
	{(*faultproxy.Proxy).HoldDown, true},
	{func(p *faultproxy.Proxy) {
		p.Refuse(true)
		p.Cut()
	}, false},
}

// eachLine does something to a group's lines.
func (p *group) eachLine(do func(*faultproxy.Proxy)) {
	for _, line := range p.lines {
		do(line)
	}
}

func (f *fixture) heal(p *group) {
	f.healed = time.Now()
	p.eachLine(func(line *faultproxy.Proxy) {
		line.Refuse(false)
		line.Release()
	})
}

// partition cuts the leader off until it gives up, or another one leads.
func partition(ctx context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	way := cuts[f.random.IntN(len(cuts))]
	defer f.heal(old.by.group)
	old.by.group.eachLine(way.cut)
	select {
	case <-old.lease.Context().Done():
	case <-ctx.Done():
	}
	if !way.heard && f.random.IntN(2) == 0 {
		_, err := f.log.after(ctx, old)
		require.NoError(t, err)
	}
}

// partitionSuccessor cuts the next candidate off, and makes the leader step down. Either the candidate after the next
// leads, or the connection is restored in time for the successor.
func partitionSuccessor(ctx context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	queue, err := old.by.Participants(ctx)
	require.NoError(t, err)
	way := cuts[f.random.IntN(len(cuts))]
	limit := time.Duration(f.random.Int64N(int64(chaosTimeout * 5 / 4)))
	if way.heard {
		limit = min(limit, chaosTimeout/2)
	}
	if len(queue) > 1 {
		successor := f.contender(queue[1].ID).group
		defer f.heal(successor)
		successor.eachLine(way.cut)
	}
	release(ctx, t, f, old)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = f.log.after(ctx, old)
}

// expire ends the leader's session.
func expire(ctx context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	session := old.by.group.client.Conn().SessionID()
	defer f.log.harmSession(old.by.group)()
	if err := zkadmin.Expire(ctx, f.server, session); !errors.Is(err, zkadmin.ErrNoSession) { // ended before, which the leader has yet to learn
		require.NoError(t, err)
	}
}

func deleteZnode(_ context.Context, t *testing.T, f *fixture, old *seenTerm) {
	t.Helper()
	defer f.log.harmZnode(old.lease.Path())()
	if err := f.conn.Delete(old.lease.Path(), -1); err != nil {
		require.ErrorIs(t, err, zk.ErrNoNode)
	}
}

// wipe deletes the parent with all its children, at once or one by one.
func wipe(ctx context.Context, t *testing.T, f *fixture, _ *seenTerm) {
	t.Helper()
	for ctx.Err() == nil {
		var deletes []any
		for _, name := range children(t, f.conn, f.path) {
			defer f.log.harmZnode(f.path + "/" + name)()
			deletes = append(deletes, &zk.DeleteRequest{Path: f.path + "/" + name, Version: -1})
		}
		if f.random.IntN(2) == 0 {
			f.random.Shuffle(len(deletes), func(i, k int) { deletes[i], deletes[k] = deletes[k], deletes[i] })
			for _, one := range deletes {
				_, _ = f.conn.Multi(one)
			}
			deletes = nil
		}
		_, err := f.conn.Multi(append(deletes, &zk.DeleteRequest{Path: f.path, Version: -1})...)
		if err == nil || err == zk.ErrNoNode && len(children(t, f.conn, f.path)) == 0 { //nolint:errorlint // zk.Conn's own value
			return
		}
	}
	require.NoError(t, ctx.Err())
}
