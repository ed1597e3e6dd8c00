package mutex_test

import (
	"net"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Participants are in queue order, the holder first, each with the id that it wrote.
func TestParticipants(t *testing.T) {
	dir, client := lockPath(t), direct(t)
	ids := []string{"holder", "", "бука 🔒", "\x00\xff", strings.Repeat("long", 16<<8), "", "last"}
	var leases []*recipes.Lease
	var waiters []<-chan result
	for i, id := range ids {
		m := newMutex(t, client, dir, mutex.WithID(id))
		if i == 0 {
			leases = append(leases, acquire(t, m))
			continue
		}
		waiters = append(waiters, waiting(t, testContext(t), m, dir, i+1))
	}
	reader := newMutex(t, direct(t), dir)
	for len(ids) > 0 {
		participants, err := reader.Participants(testContext(t))
		require.NoError(t, err)
		require.Len(t, participants, len(ids))
		for i, p := range participants {
			require.Equal(t, ids[i], p.ID)
			require.Equal(t, i == 0, p.Leader)
			require.True(t, strings.HasPrefix(p.Path, dir+"/_c_"), p.Path)
			exists, stat, err := observer(t).Exists(p.Path)
			require.NoError(t, err)
			require.True(t, exists)
			require.EqualValues(t, len(ids[i]), stat.DataLength)
		}
		holder := leases[len(leases)-1]
		require.Equal(t, holder.Path(), participants[0].Path)
		require.NoError(t, holder.Release())
		if ids = ids[1:]; len(ids) > 0 {
			lease, err := outcome(t, waiters[0])
			require.NoError(t, err)
			leases, waiters = append(leases, lease), waiters[1:]
		}
	}
	participants, err := reader.Participants(testContext(t))
	require.NoError(t, err)
	require.Empty(t, participants, "an empty parent has none")
}

// A path that nobody has used has no participants, and asking makes nothing.
func TestParticipantsOfAMissingPath(t *testing.T) {
	dir := lockPath(t)
	participants, err := newMutex(t, direct(t), dir+"/deep/er").Participants(testContext(t))
	require.NoError(t, err)
	require.Empty(t, participants)
	exists, _, err := observer(t).Exists(dir)
	require.NoError(t, err)
	require.False(t, exists)
}

// An empty id is written as an empty value. No value at all is another thing on the
// wire, which Curator's participants can't read.
func TestEmptyIDIsNotNil(t *testing.T) {
	dir, conn := lockPath(t), observer(t)
	lease := acquire(t, newMutex(t, direct(t), dir, mutex.WithID("")))
	none, err := conn.Create(dir+"/none", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	data, _, err := conn.Get(none)
	require.NoError(t, err)
	require.Nil(t, data, "zk.Conn tells the two apart")

	data, _, err = conn.Get(lease.Path())
	require.NoError(t, err)
	require.NotNil(t, data)
	require.Empty(t, data)
	require.NoError(t, lease.Release())
}

// Without an id a contender says where it runs, as Curator's do.
func TestDefaultID(t *testing.T) {
	dir := lockPath(t)
	m := newMutex(t, direct(t), dir)
	lease := acquire(t, m)
	participants, err := m.Participants(testContext(t))
	require.NoError(t, err)
	require.Len(t, participants, 1)
	require.NotNil(t, net.ParseIP(participants[0].ID), "the host's address: %q", participants[0].ID)
	require.NoError(t, lease.Release())
}

// Paths are those on the server, namespace included; a namespaced lock and a plain
// one on the same znode are the same lock.
func TestNamespaceInPaths(t *testing.T) {
	dir := lockPath(t)
	team, lock := dir[1:]+"/team", "/locks/a"
	m := newMutex(t, direct(t, recipes.WithNamespace(team)), lock)
	full := "/" + team + lock
	lease := acquire(t, m)
	require.True(t, strings.HasPrefix(lease.Path(), full+"/_c_"), lease.Path())
	participants, err := m.Participants(testContext(t))
	require.NoError(t, err)
	require.Len(t, participants, 1)
	require.Equal(t, lease.Path(), participants[0].Path)
	require.Len(t, children(t, full), 1)

	_, err = newMutex(t, direct(t), full).TryAcquire(testContext(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	_, err = newMutex(t, direct(t), lock+lockPath(t)).TryAcquire(testContext(t))
	require.NoError(t, err, "outside the namespace is elsewhere")
	require.NoError(t, lease.Release())
}

// The path "/" is the namespace itself, or the root: its other children are no
// contenders.
func TestLockOnTheRoot(t *testing.T) {
	namespace := lockPath(t)
	for root, client := range map[string]*recipes.Client{
		namespace + "/_c_": direct(t, recipes.WithNamespace(namespace)),
		"/_c_":             direct(t),
	} {
		m := newMutex(t, client, "/")
		lease := acquire(t, m)
		require.True(t, strings.HasPrefix(lease.Path(), root), lease.Path())
		participants, err := m.Participants(testContext(t))
		require.NoError(t, err)
		require.Len(t, participants, 1)
		_, err = m.TryAcquire(testContext(t))
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
		require.NoError(t, lease.Release())
	}
}

// Those who come and go while the list is taken neither fail it nor appear twice.
func TestParticipantsWhileTheyChange(t *testing.T) {
	dir := lockPath(t)
	reader := newMutex(t, direct(t), dir)
	stop, stopped := make(chan struct{}), make(chan error, 8)
	for range cap(stopped) {
		m := newMutex(t, direct(t), dir)
		go func() { // joined through stopped
			for {
				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
				if err := m.Do(t.Context(), nothing); err != nil {
					stopped <- err
					return
				}
			}
		}()
	}
	for range 200 {
		participants, err := reader.Participants(testContext(t))
		require.NoError(t, err)
		seen := map[string]bool{}
		for i, p := range participants {
			require.False(t, seen[p.Path])
			seen[p.Path] = true
			require.Equal(t, i == 0, p.Leader)
		}
	}
	close(stop)
	for range cap(stopped) {
		require.NoError(t, <-stopped)
	}
	require.Empty(t, children(t, dir))
}
