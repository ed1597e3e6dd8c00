package interop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// TestRevocation has each language ask the other for the lock, without and with a namespace.
func TestRevocation(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{"": {}, " in a namespace": {namespace: unique("revocation")}} {
		t.Run("Go asks Curator"+name, func(t *testing.T) { t.Parallel(); goAsksJava(t, o) })
		t.Run("Curator asks Go"+name, func(t *testing.T) { t.Parallel(); javaAsksGo(t, o) })
	}
}

func goAsksJava(t *testing.T, o options) {
	t.Helper()
	client := connect(t, o)
	path := testkit.Path(t)
	revoker := revoke.New(client)
	holder := openJava(t, o).contender(t, path, "holder").(*agentContender)
	waiter := openJava(t, o).contender(t, path, "waiter").(*agentContender)
	last := goSession{client}.contender(t, path, "last")
	for _, c := range []*agentContender{holder, waiter} {
		c.process.Call(t, "revocable", c.name)
	}
	require.NoError(t, holder.lock())
	wait := behind(t, waiter, full(o, path), "Curator")
	end := behind(t, last, full(o, path), "Go")
	queue := participants(t, last.(*goContender).mutex, 3)

	require.Equal(t, "false", holder.process.Do(t, "revoked", holder.name, "0"))
	for _, p := range queue[:2] {
		require.NoError(t, revoker.AttemptRevoke(testkit.Context(t), p.Path))
	}
	require.Equal(t, "true", holder.process.Do(t, "revoked", holder.name, "30000"))
	wait.pending(t, "the lock is still held")
	require.NoError(t, holder.unlock())
	wait.granted(t, "Curator")
	require.Equal(t, "true", waiter.process.Do(t, "revoked", waiter.name, "30000"), "asked while it waited")
	end.pending(t, "the lock is still held")
	require.NoError(t, waiter.unlock())
	end.granted(t, "Go")
	require.NoError(t, last.unlock())
}

func javaAsksGo(t *testing.T, o options) {
	t.Helper()
	session := openJava(t, o).(agentSession)
	path := testkit.Path(t)
	called := make(chan *recipes.Lease, 2)
	revocable := func() *goContender {
		m, err := mutex.New(connect(t, o), path, mutex.WithRevocationListener(func(lease *recipes.Lease) { called <- lease }))
		require.NoError(t, err)
		return &goContender{ctx: t.Context(), mutex: m}
	}
	holder, waiter := revocable(), revocable()
	require.NoError(t, holder.lock())
	wait := behind(t, waiter, full(o, path), "Go")
	last := session.contender(t, path, "last").(*agentContender)
	end := behind(t, last, full(o, path), "Curator")
	lister := session.contender(t, path, "").(*agentContender)
	var nodes []string // relative to the namespace
	testkit.Eventually(t, func() bool { nodes = lister.process.Call(t, "nodes", lister.name); return len(nodes) == 3 }, "Curator sees all")

	require.Empty(t, called)
	for _, node := range nodes[:2] {
		session.process.Call(t, "revoke", session.client, node)
	}
	testkit.Receive(t, holder.lease.Revoked(), "the holder is asked")
	require.Same(t, holder.lease, testkit.Receive(t, called, "the listener is called"))
	require.NoError(t, holder.lease.Context().Err(), "still held")
	wait.pending(t, "the lock is still held")
	require.NoError(t, holder.unlock())
	wait.granted(t, "Go")
	testkit.Receive(t, waiter.lease.Revoked(), "the waiter was asked while it waited")
	require.Same(t, waiter.lease, testkit.Receive(t, called, "the listener is called"))
	end.pending(t, "the lock is still held")
	require.NoError(t, waiter.unlock())
	end.granted(t, "Curator")
	require.NoError(t, last.unlock())
}

// full is the path on the server.
func full(o options, path string) string {
	if o.namespace == "" {
		return path
	}
	return "/" + o.namespace + path
}

// kazoo and zk.Lock have no revocation: they don't notice. The request replaces their id, which is
// empty, and shows as Revoked.
func TestRevocationOfOthers(t *testing.T) {
	t.Parallel()
	client := connect(t, options{})
	for _, l := range []language{pythonLang, zkLock} {
		path := testkit.Path(t)
		holder := l.open(t, options{}).contender(t, path, "an id")
		start(holder).granted(t, l.name)
		require.NoError(t, revoke.New(client).AttemptRevoke(testkit.Context(t), queue(t, path)[0]))
		m, err := mutex.New(client, path)
		require.NoError(t, err)
		queue := participants(t, m, 1)
		require.Equal(t, []string{"*"}, starred(queue), "no id, and first")
		require.True(t, queue[0].Revoked)
		_, err = m.TryAcquire(testkit.Context(t))
		require.ErrorIs(t, err, recipes.ErrNotAcquired, l.name)
		require.NoError(t, holder.unlock())
	}
}
