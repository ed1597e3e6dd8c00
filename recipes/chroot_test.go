package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Other clients fail with NoNode below a chroot that does not exist. A typo must not become another lock.
func TestChrootIsNeverMade(t *testing.T) {
	for _, chroot := range []string{"/typo", "/team/typo", "/team/typo/deep"} {
		t.Run(chroot, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				server := zktest.NewServer(t)
				server.Put("/team", nil)
				client, err := recipes.Connect(t.Context(), []string{server.Addr() + chroot}, recipes.WithDialer(server.Dialer()), recipes.WithNamespace("shop"))
				require.NoError(t, err)
				defer func() { require.NoError(t, client.Close()) }()
				lock, err := mutex.New(client, "/locks/a")
				require.NoError(t, err)
				permits, err := semaphore.New(client, "/permits", 2)
				require.NoError(t, err)
				job, err := once.New(client, "/job")
				require.NoError(t, err)
				election, err := latch.New(client, "/leader")
				require.NoError(t, err)
				require.NoError(t, election.Start())
				start := time.Now()
				for name, try := range map[string]func(context.Context) error{
					"mutex":     func(ctx context.Context) error { _, err := lock.Acquire(ctx); return err },
					"try":       func(ctx context.Context) error { _, err := lock.TryAcquire(ctx); return err },
					"semaphore": func(ctx context.Context) error { _, err := permits.Acquire(ctx); return err },
					"once": func(ctx context.Context) error {
						return job.Do(ctx, "1", func(context.Context, *recipes.Lease) error { return nil })
					},
				} {
					err := try(t.Context())
					require.ErrorIs(t, err, zk.ErrNoNode, name)
					require.ErrorContains(t, err, "chroot "+chroot, name)
				}
				require.Equal(t, start, time.Now(), "no attempt is repeated")
				require.Equal(t, []string{"team", "zookeeper"}, server.Children("/"))
				require.Empty(t, server.Children("/team"))

				server.Put(chroot, nil)
				lease, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				require.Contains(t, lease.Path(), chroot+"/shop/locks/a/")
				require.NoError(t, lease.Release())
				bubble.Pass(2 * time.Minute)
				require.True(t, election.HasLeadership(), "a candidate finds the chroot")
				require.NoError(t, election.Close())
			})
		})
	}
}
