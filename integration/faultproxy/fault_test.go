package faultproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestDroppedReplyMeansAppliedAndCut(t *testing.T) {
	l := newLine(t)
	session, path := l.conn.SessionID(), newPath()
	rule := l.proxy.DropReply(faultproxy.Op("create"), 1)

	require.ErrorIs(t, l.create(path), zk.ErrConnectionClosed)

	receive(t, rule.Done())
	require.True(t, l.exists(t, path))
	waitSession(t, l.conn)
	require.Equal(t, session, l.conn.SessionID(), "the session survives")
	require.ErrorIs(t, l.create(path), zk.ErrNodeExists, "the next reply arrives")
	require.Equal(t, 1, rule.Hits())
}

func TestDroppedRequestMeansNotAppliedAndCut(t *testing.T) {
	l := newLine(t)
	path := newPath()
	rule := l.proxy.DropRequest(faultproxy.Op("create"), 2)

	for range 2 {
		require.ErrorIs(t, l.create(path), zk.ErrConnectionClosed)
		require.False(t, l.exists(t, path))
		waitSession(t, l.conn)
	}
	receive(t, rule.Done())
	require.NoError(t, l.create(path))
	require.Equal(t, 2, rule.Hits())
}

func TestRulesTakeMatchingRequestsOnly(t *testing.T) {
	l := newLine(t)
	hit, miss := newPath(), newPath()
	rule := l.proxy.DropRequest(faultproxy.OpPath("create", hit), 1)
	require.NoError(t, l.create(miss))
	_, _, err := l.conn.Exists(hit)
	require.NoError(t, err)
	require.Zero(t, rule.Hits())
	require.Error(t, l.create(hit))
	require.Equal(t, 1, rule.Hits())
}

func TestRemovedRuleActsNoMore(t *testing.T) {
	l := newLine(t)
	rule := l.proxy.DropRequest(faultproxy.Creates(), -1)
	require.Error(t, l.create(newPath()))
	rule.Remove()
	waitSession(t, l.conn)
	require.NoError(t, l.create(newPath()))
}

func TestReplyLostForAnotherReasonLeavesTheRule(t *testing.T) {
	l := newLine(t)
	rule := l.proxy.DropReply(faultproxy.Op("create"), 1)
	l.proxy.HoldDown()
	first := l.createAsync(newPath())
	require.Eventually(t, func() bool { return l.proxy.Counts().Requests["create"] == 1 }, patience, moment)
	l.proxy.Cut()
	require.Error(t, receive(t, first))
	require.Zero(t, rule.Hits())

	l.proxy.Release()
	waitSession(t, l.conn)
	require.Error(t, l.create(newPath()))
	require.Equal(t, 1, rule.Hits())
}

func TestHandshakeReplyCanBeLost(t *testing.T) {
	l := newLine(t)
	rule := l.proxy.DropReply(faultproxy.Op("connect"), 1)
	conn := testkit.Conn(t, []string{l.proxy.Addr()}, sessionTimeout)
	require.Equal(t, 1, rule.Hits())
	require.NotZero(t, conn.SessionID())
}

func TestHookRunsBeforeTheServerSeesTheRequest(t *testing.T) {
	l := newLine(t)
	path := newPath()
	var existed bool
	hook := l.proxy.OnRequest(func(r faultproxy.Request) {
		if r.Op == "create" {
			existed, _, _ = l.witness.Exists(r.Path)
		}
	})
	require.NoError(t, l.create(path))
	require.False(t, existed)
	require.True(t, l.exists(t, path))
	require.Positive(t, hook.Hits())
}

func TestHookThatCutsKeepsTheRequestFromTheServer(t *testing.T) {
	l := newLine(t)
	path := newPath()
	hook := l.proxy.OnRequest(func(r faultproxy.Request) {
		if r.Op == "create" {
			l.proxy.Cut()
		}
	})
	require.ErrorIs(t, l.create(path), zk.ErrConnectionClosed)
	hook.Remove()
	waitSession(t, l.conn)
	require.False(t, l.exists(t, path))
}

func TestHookThatHoldsHoldsTheVeryRequest(t *testing.T) {
	l := newLine(t)
	path := newPath()
	held := make(chan struct{})
	hook := l.proxy.OnRequest(func(r faultproxy.Request) {
		if r.Op == "create" {
			l.proxy.Hold()
			close(held)
		}
	})
	result := l.createAsync(path)
	receive(t, held)
	hook.Remove()
	requireSilence(t, result)
	require.False(t, l.exists(t, path))
	l.proxy.Release()
	require.NoError(t, receive(t, result))
}

func TestBeforeReplyRunsOnceApplied(t *testing.T) {
	l := newLine(t)
	path := newPath()
	replies := make(chan faultproxy.Reply, 2)
	l.proxy.BeforeReply(faultproxy.Op("create"), func(r faultproxy.Request, reply faultproxy.Reply) {
		if ok, _, err := l.witness.Exists(r.Path); err == nil && ok {
			replies <- reply
		}
	})
	require.NoError(t, l.create(path))
	require.ErrorIs(t, l.create(path), zk.ErrNodeExists)
	created, refused := receive(t, replies), receive(t, replies)
	require.Zero(t, created.Err)
	require.Positive(t, created.Zxid)
	require.Equal(t, int32(-110), refused.Err)
}

func TestHeldRequestWaitsForItsRelease(t *testing.T) {
	l := newLine(t)
	path := newPath()
	arrived, release := l.proxy.HoldRequest(faultproxy.OpPath("create", path))
	result := l.createAsync(path)
	receive(t, arrived)
	require.False(t, l.exists(t, path))
	release()
	release()
	require.NoError(t, receive(t, result))
	require.True(t, l.exists(t, path))
}

func TestHeldReplyWaitsForItsRelease(t *testing.T) {
	l := newLine(t)
	path := newPath()
	arrived, release := l.proxy.HoldReply(faultproxy.OpPath("create", path))
	result := l.createAsync(path)
	receive(t, arrived)
	require.True(t, l.exists(t, path))
	requireSilence(t, result)
	release()
	require.NoError(t, receive(t, result))
}

func TestExpiredSessionIsReplaced(t *testing.T) {
	l := newLine(t)
	session := l.conn.SessionID()
	require.NoError(t, l.proxy.ExpireSessions(t.Context()))
	require.Eventually(t, func() bool {
		return l.conn.State() == zk.StateHasSession && l.conn.SessionID() != session
	}, patience, moment)
}

func TestDelayedReplyMakesHandshakesSlow(t *testing.T) {
	const delay = time.Second // which the server may not take for a create
	l := newLine(t)
	session := l.conn.SessionID()
	rule := l.proxy.DelayReply(faultproxy.Op("connect"), delay)
	l.proxy.Cut()
	require.Eventually(t, func() bool { return l.conn.State() != zk.StateHasSession }, patience, moment)
	begun := time.Now()
	waitSession(t, l.conn)
	require.GreaterOrEqual(t, time.Since(begun), delay-moment)
	require.Equal(t, session, l.conn.SessionID())
	require.Positive(t, rule.Hits())
	begun = time.Now()
	require.NoError(t, l.create(newPath()))
	require.Less(t, time.Since(begun), delay, "no other reply is held back")
}
