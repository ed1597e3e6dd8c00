package mutex_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// offline is a client whose servers refuse every dial.
func offline(t *testing.T) *recipes.Client {
	t.Helper()
	client, err := recipes.Open([]string{"10.0.0.1:2181"}, recipes.WithOperationTimeout(2*time.Second),
		recipes.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, errors.New("connection refused") }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestNewRefusesBadInput(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := offline(t)
		for _, path := range []string{"", "locks", "/locks/", "//", "/zookeeper/locks", "/a/../b"} {
			_, err := mutex.New(client, path)
			require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
			require.ErrorContains(t, err, (&recipes.OpError{Op: "mutex: new", Path: path, Err: errors.New("")}).Error())
		}
		for want, opt := range map[string]mutex.Option{
			"nil option":               nil,
			"revocation listener: nil": mutex.WithRevocationListener(nil),
			`id "__REVOKE__": this`:    mutex.WithID("__REVOKE__"), // would revoke itself
			`id "__YIELD__ `:           mutex.WithID("__YIELD__ priority x\nid"),
			"id of 65537 bytes":        mutex.WithID(strings.Repeat("x", 64<<10+1)),
		} {
			_, err := mutex.New(client, "/locks/a", opt)
			require.ErrorContains(t, err, want)
		}
		_, err := mutex.New(client, "/locks/a", mutex.WithID(strings.Repeat("x", 64<<10)))
		require.NoError(t, err)
		_, err = mutex.New(nil, "/locks/a")
		require.ErrorContains(t, err, "the client is nil")
	})
}

// Without a server every wait is bounded by its context, and the error says what was
// attempted, where, and what was in the way.
func TestWithoutAServer(t *testing.T) {
	for op, call := range map[string]func(ctx context.Context, m *mutex.InterProcessMutex) error{
		"mutex: acquire":      func(ctx context.Context, m *mutex.InterProcessMutex) error { _, err := m.Acquire(ctx); return err },
		"mutex: try acquire":  func(ctx context.Context, m *mutex.InterProcessMutex) error { _, err := m.TryAcquire(ctx); return err },
		"mutex: participants": func(ctx context.Context, m *mutex.InterProcessMutex) error { _, err := m.Participants(ctx); return err },
	} {
		t.Run(op, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				client := offline(t)
				m, err := mutex.New(client, "/locks/a")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				err = call(ctx, m)
				require.LessOrEqual(t, time.Since(start), 5*time.Second)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var failed *recipes.OpError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, op, failed.Op)
				require.Equal(t, "/locks/a", failed.Path)
				require.ErrorContains(t, err, "not connected")

				require.NoError(t, client.Close())
				require.ErrorIs(t, call(t.Context(), m), recipes.ErrClosed)
			})
		})
	}
}

func TestDoDoesNotRunWithoutTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		m, err := mutex.New(offline(t), "/locks/a")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = m.Do(ctx, func(context.Context, *recipes.Lease) error {
			t.Error("ran")
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "mutex: acquire /locks/a: ")
	})
}
