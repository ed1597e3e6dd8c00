package queue_test

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
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// An unused path has no participants, and asking creates nothing.
func TestParticipantsOfAMissingPath(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		participants, err := locks.MutexOn(f.T, f.Client(), "/missing/deep/er").Participants(f.Context())
		require.NoError(f, err)
		require.Empty(f, participants)
		_, _, exists := f.Srv.Get("/missing")
		require.False(f, exists)
	})
}

// However many reads fail, the error is one line.
func TestParticipantsErrorIsOneLine(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		f.Srv.Put(locks.Path, nil)
		for range 3 {
			_, err := f.Client().Conn().Create(locks.Path+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(f, err)
		}
		m := f.Mutex(f.Client())
		ctx, cancel := context.WithCancel(f.Context())
		f.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData {
				cancel()
				return zktest.Fault{Delay: time.Second}
			}
			return zktest.Fault{}
		})
		_, err := m.Participants(ctx)
		require.EqualError(f, err, "mutex: participants "+locks.Path+": context canceled")
	})
}

// An empty id is written as an empty value. No value at all is another thing on the
// wire, which Curator's participants can't read.
func TestEmptyIDIsNotNil(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease := bubble.Acquire(f.T, f.Mutex(client, mutex.WithID("")).Acquire)
		none, err := client.Conn().Create(locks.Path+"/none", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
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
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		lease := bubble.Acquire(f.T, m.Acquire)
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
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client(recipes.WithNamespace("all/team")))
		const full = "/all/team" + locks.Path
		lease := bubble.Acquire(f.T, m.Acquire)
		require.True(f, strings.HasPrefix(lease.Path(), full+"/_c_"), lease.Path())
		participants, err := m.Participants(f.Context())
		require.NoError(f, err)
		require.Len(f, participants, 1)
		require.Equal(f, lease.Path(), participants[0].Path)
		require.Len(f, f.Srv.Children(full), 1)

		_, err = locks.MutexOn(f.T, f.Client(), full).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		outside, err := f.Mutex(f.Client()).TryAcquire(f.Context())
		require.NoError(f, err, "outside the namespace is elsewhere")
		require.NoError(f, outside.Release())
		require.NoError(f, lease.Release())
	})
}

// The path "/" is the namespace itself, or the root: its other children are no
// contenders.
func TestLockOnTheRoot(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		for root, client := range map[string]*recipes.Client{
			"/space/_c_": f.Client(recipes.WithNamespace("/space")),
			"/_c_":       f.Client(),
		} {
			m := locks.MutexOn(f.T, client, "/")
			lease := bubble.Acquire(f.T, m.Acquire)
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

// Contenders that join and leave during the listing neither make it fail nor appear twice.
func TestParticipantsWhileTheyChange(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		reader := f.Mutex(f.Troubled())
		stop, stopped := make(chan struct{}), make(chan error, 8)
		for range cap(stopped) {
			m := f.Mutex(f.Client())
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
			bubble.Pause(time.Millisecond)
		}
		close(stop)
		for range cap(stopped) {
			require.NoError(f, <-stopped)
		}
		require.Greater(f, len(changes), rounds/4, "the queue has changed meanwhile")
		require.Empty(f, f.Contenders())
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
		if err := m.Do(ctx, locks.Nothing); err != nil {
			return err
		}
	}
}
