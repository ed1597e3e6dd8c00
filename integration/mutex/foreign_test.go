package mutex_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	hex32 = "0123456789abcdef0123456789abcdef"
	uuid  = "0f8fad5b-d9cb-469f-a165-70867728950e"
)

// strangers are children that take no part in the queue. Some of them make zk.Lock fail, or panic.
var strangers = []string{
	"config", "_c_x", "lock-", "__x", "lock-abc", "-lock-", "latch-", "__lock__",
	"_c_" + hex32 + "-lock-", "_c_" + uuid + "-lock-", "_c_" + uuid + "-lock-12345", "_c_" + uuid,
	"_c_" + uuid + "-lock-000000000a", "lock-00000000000", "lock--", "lock-1", "write-0000000000", "0000000000",
	"_c_" + uuid + "-lock-0000000000x", "лок-0000000000", strings.Repeat("x", 300),
}

// Strangers cause no failure or panic, and no contender waits for them.
func TestStrangersAreIgnored(t *testing.T) {
	dir := testkit.Path(t)
	m := newMutex(t, direct(t), dir, mutex.WithID("me"))
	conn := observer(t)
	first := acquire(t, m) // makes the parent
	for i, name := range strangers {
		flags := int32(zk.FlagPersistent)
		if i%2 == 1 {
			flags = zk.FlagEphemeral
		}
		_, err := conn.Create(dir+"/"+name, nil, flags, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, name)
	}
	waiter := waiting(t, testkit.Context(t), m, dir, len(strangers)+2)
	participants, err := m.Participants(testkit.Context(t))
	require.NoError(t, err)
	require.Len(t, participants, 2)
	requireParticipant(t, recipes.Participant{ID: "me", Path: first.Path(), Leader: true, Token: first.FencingToken()}, participants[0])
	_, err = m.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)

	require.NoError(t, first.Release())
	second, err := outcome(t, waiter)
	require.NoError(t, err)
	require.NoError(t, second.Release())
	require.NoError(t, m.Do(testkit.Context(t), nothing))
	participants, err = m.Participants(testkit.Context(t))
	require.NoError(t, err)
	require.Empty(t, participants)
	require.ElementsMatch(t, strangers, children(t, dir), "none of them is touched")
}

// rivals are znodes of other clients that do take part. Their owner is gone as soon as the test deletes them.
var rivals = map[string]string{
	"Curator":        "_c_" + uuid + "-lock-",
	"Curator, plain": "lock-",
	"zk.Lock":        "_c_" + hex32 + "-lock-",
	"kazoo":          hex32 + "__lock__",
	"Curator, latch": "_c_" + uuid + "-latch-",
}

// We wait for real contenders of other clients, whether they hold or wait.
func TestRivalsAreHonoured(t *testing.T) {
	for name, prefix := range rivals {
		t.Run(name, func(t *testing.T) {
			dir := testkit.Path(t)
			m := newMutex(t, direct(t), dir)
			require.NoError(t, acquire(t, m).Release()) // makes the parent
			conn := observer(t)
			join := func() string {
				node, err := conn.Create(dir+"/"+prefix, []byte("rival"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				return node
			}
			holder := join()
			first := waiting(t, testkit.Context(t), m, dir, 2)
			between := join()
			second := waiting(t, testkit.Context(t), m, dir, 4)
			participants, err := m.Participants(testkit.Context(t))
			require.NoError(t, err)
			require.Len(t, participants, 4)
			requireParticipant(t, recipes.Participant{ID: "rival", Path: holder, Leader: true, Token: participants[0].Token}, participants[0])
			requireParticipant(t, recipes.Participant{ID: "rival", Path: between, Token: participants[2].Token}, participants[2])

			require.Empty(t, first)
			require.NoError(t, conn.Delete(holder, -1))
			lease, err := outcome(t, first)
			require.NoError(t, err)
			require.Equal(t, participants[1].Path, lease.Path())
			require.NoError(t, lease.Release())
			_, err = m.TryAcquire(testkit.Context(t))
			require.ErrorIs(t, err, recipes.ErrNotAcquired, "a rival holds it")
			require.Empty(t, second)
			require.NoError(t, conn.Delete(between, -1))
			lease, err = outcome(t, second)
			require.NoError(t, err)
			require.NoError(t, lease.Release())
		})
	}
}

// zk.Lock of go-zookeeper and this library share a path, each behind the other.
func TestTogetherWithZkLock(t *testing.T) {
	dir := testkit.Path(t)
	m := newMutex(t, direct(t), dir)
	theirs := func() *zk.Lock { return zk.NewLock(observer(t), dir, zk.WorldACL(zk.PermAll)) }
	holder, waiter := theirs(), theirs()
	require.NoError(t, holder.Lock())
	ours := waiting(t, testkit.Context(t), m, dir, 2)
	locked := make(chan error, 1)
	go func() { locked <- waiter.Lock() }() // joined below
	testkit.Eventually(t, func() bool { return len(children(t, dir)) == 3 }, "zk.Lock's znode")

	require.Empty(t, ours)
	require.NoError(t, holder.Unlock())
	lease, err := outcome(t, ours)
	require.NoError(t, err)
	require.Empty(t, locked, "zk.Lock waits for us")
	participants, err := m.Participants(testkit.Context(t))
	require.NoError(t, err)
	require.Len(t, participants, 2)
	require.Equal(t, lease.Path(), participants[0].Path)
	require.NoError(t, lease.Release())
	select {
	case err := <-locked:
		require.NoError(t, err)
	case <-testkit.Context(t).Done():
		require.Fail(t, "zk.Lock has not got its turn")
	}
	_, err = m.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	require.NoError(t, waiter.Unlock())
	require.NoError(t, m.Do(testkit.Context(t), nothing))
	require.Empty(t, children(t, dir))
}

func nothing(context.Context, *recipes.Lease) error { return nil }

// requireParticipant compares all but the time, which is the server's.
func requireParticipant(t *testing.T, want, got recipes.Participant) {
	t.Helper()
	require.NotZero(t, got.Token)
	require.NotZero(t, got.Since)
	want.Since = got.Since
	require.Equal(t, want, got)
}
