package mutex_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Participants are in queue order, the holder first, each with the id that it wrote.
func TestParticipants(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		ids := []string{"holder", "", "бука 🔒", "\x00\xff", strings.Repeat("long", 16<<8), "", "last"}
		holder := acquire(f.T, f.mutex(client, mutex.WithID(ids[0])))
		var waiters []<-chan result
		for _, id := range ids[1:] {
			waiters = append(waiters, f.waiting(f.Context(), f.mutex(client, mutex.WithID(id))))
		}
		reader := f.mutex(f.client())
		for len(ids) > 0 {
			participants, err := reader.Participants(f.Context())
			require.NoError(f, err)
			require.Len(f, participants, len(ids))
			for i, p := range participants {
				require.Equal(f, ids[i], p.ID)
				require.Equal(f, i == 0, p.Leader)
				require.True(f, strings.HasPrefix(p.Path, lock+"/_c_"), p.Path)
				data, _, exists := f.srv.Get(p.Path)
				require.True(f, exists)
				require.Equal(f, ids[i], string(data))
			}
			require.Equal(f, holder.Path(), participants[0].Path)
			require.NoError(f, holder.Release())
			if ids = ids[1:]; len(ids) > 0 {
				holder, waiters = f.granted(waiters[0]), waiters[1:]
			}
		}
		participants, err := reader.Participants(f.Context())
		require.NoError(f, err)
		require.Empty(f, participants, "an empty parent has none")
	})
}

// A path that nobody has used has no participants, and asking makes nothing.
func TestParticipantsOfAMissingPath(t *testing.T) {
	inBubble(t, func(f *fixture) {
		participants, err := mutexOn(f.T, f.client(), "/missing/deep/er").Participants(f.Context())
		require.NoError(f, err)
		require.Empty(f, participants)
		_, _, exists := f.srv.Get("/missing")
		require.False(f, exists)
	})
}

// An empty id is written as an empty value. No value at all is another thing on the
// wire, which Curator's participants can't read.
func TestEmptyIDIsNotNil(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		lease := acquire(f.T, f.mutex(client, mutex.WithID("")))
		none, err := client.Conn().Create(lock+"/none", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(f, err)
		data, _, err := client.Conn().Get(none)
		require.NoError(f, err)
		require.Nil(f, data, "zk.Conn tells the two apart")

		data, _, err = client.Conn().Get(lease.Path())
		require.NoError(f, err)
		require.NotNil(f, data)
		require.Empty(f, data)
		require.NoError(f, lease.Release())
	})
}

// Without an id a contender says where it runs, as Curator's do.
func TestDefaultID(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		lease := acquire(f.T, m)
		participants, err := m.Participants(f.Context())
		require.NoError(f, err)
		require.Len(f, participants, 1)
		host, err := os.Hostname()
		require.NoError(f, err)
		require.Equal(f, fmt.Sprintf("%s/%d", host, os.Getpid()), participants[0].ID)
		require.NoError(f, lease.Release())
	})
}

// Paths are those on the server, namespace included; a namespaced lock and a plain
// one on the same znode are the same lock.
func TestNamespaceInPaths(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client(recipes.WithNamespace("all/team")))
		const full = "/all/team" + lock
		lease := acquire(f.T, m)
		require.True(f, strings.HasPrefix(lease.Path(), full+"/_c_"), lease.Path())
		participants, err := m.Participants(f.Context())
		require.NoError(f, err)
		require.Len(f, participants, 1)
		require.Equal(f, lease.Path(), participants[0].Path)
		require.Len(f, f.srv.Children(full), 1)

		_, err = mutexOn(f.T, f.client(), full).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		outside, err := f.mutex(f.client()).TryAcquire(f.Context())
		require.NoError(f, err, "outside the namespace is elsewhere")
		require.NoError(f, outside.Release())
		require.NoError(f, lease.Release())
	})
}

// The path "/" is the namespace itself, or the root: its other children are no
// contenders.
func TestLockOnTheRoot(t *testing.T) {
	inBubble(t, func(f *fixture) {
		for root, client := range map[string]*recipes.Client{
			"/space/_c_": f.client(recipes.WithNamespace("/space")),
			"/_c_":       f.client(),
		} {
			m := mutexOn(f.T, client, "/")
			lease := acquire(f.T, m)
			require.True(f, strings.HasPrefix(lease.Path(), root), lease.Path())
			participants, err := m.Participants(f.Context())
			require.NoError(f, err)
			require.Len(f, participants, 1)
			_, err = m.TryAcquire(f.Context())
			require.ErrorIs(f, err, recipes.ErrNotAcquired)
			require.NoError(f, lease.Release())
		}
	})
}

// Those who come and go while the list is taken neither fail it nor appear twice.
func TestParticipantsWhileTheyChange(t *testing.T) {
	inBubble(t, func(f *fixture) {
		reader := f.mutex(f.troubled())
		stop, stopped := make(chan struct{}), make(chan error, 8)
		for range cap(stopped) {
			m := f.mutex(f.client())
			go func() { stopped <- lockUntil(f.Context(), m, stop) }() // joined through stopped
		}
		changes := map[string]bool{}
		rounds := testkit.Shorter(200, 50)
		for range rounds {
			participants, err := reader.Participants(f.Context())
			require.NoError(f, err)
			seen := map[string]bool{}
			for i, p := range participants {
				require.False(f, seen[p.Path])
				seen[p.Path], changes[p.Path] = true, true
				require.Equal(f, i == 0, p.Leader)
			}
			pause(time.Millisecond)
		}
		close(stop)
		for range cap(stopped) {
			require.NoError(f, <-stopped)
		}
		require.Greater(f, len(changes), rounds/4, "the queue has changed meanwhile")
		require.Empty(f, f.queue())
	})
}

// lockUntil locks and releases again and again, until stop is closed.
func lockUntil(ctx context.Context, m *mutex.InterProcessMutex, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		if err := m.Do(ctx, nothing); err != nil {
			return err
		}
	}
}
