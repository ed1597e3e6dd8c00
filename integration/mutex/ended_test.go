package mutex_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// The context of an ended hold never acquires again, however it is disguised and
// whoever holds the lock since: the error is why the hold has ended.
func TestEndedHoldNeverReenters(t *testing.T) {
	ways := []struct {
		name  string
		cause error
		end   func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy, lease *recipes.Lease)
	}{
		{"released", recipes.ErrReleased, func(t *testing.T, _ *recipes.Client, _ *faultproxy.Proxy, lease *recipes.Lease) {
			t.Helper()
			require.NoError(t, lease.Release())
		}},
		{"session expired", recipes.ErrSessionLost, func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy, _ *recipes.Lease) {
			t.Helper()
			expireUnheard(t, client, proxy)
		}},
		{"znode deleted", recipes.ErrNodeDeleted, func(t *testing.T, _ *recipes.Client, _ *faultproxy.Proxy, lease *recipes.Lease) {
			t.Helper()
			require.NoError(t, observer(t).Delete(lease.Path(), -1))
		}},
		{"client closed", recipes.ErrClosed, func(t *testing.T, client *recipes.Client, _ *faultproxy.Proxy, _ *recipes.Lease) {
			t.Helper()
			require.NoError(t, client.Close())
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			client, proxy := proxied(t)
			path := lockPath(t)
			m := newMutex(t, client, path)
			lease := acquire(t, m)
			inner, err := m.Acquire(context.WithoutCancel(lease.Context()))
			require.NoError(t, err)
			if way.cause == recipes.ErrReleased { //nolint:errorlint // a table's value
				require.NoError(t, inner.Release())
			}
			way.end(t, client, proxy, lease)
			require.ErrorIs(t, ended(t, lease), way.cause)
			require.ErrorIs(t, ended(t, inner), way.cause, "inner leases end with the hold")

			old := []context.Context{lease.Context(), inner.Context(), context.WithoutCancel(inner.Context())}
			refused := func() {
				creates := proxy.Counts().Requests["create"]
				for _, ctx := range old {
					_, err := m.Acquire(ctx)
					require.ErrorIs(t, err, way.cause)
					_, err = m.TryAcquire(ctx)
					require.ErrorIs(t, err, way.cause)
					require.ErrorIs(t, m.Do(ctx, func(context.Context, *recipes.Lease) error {
						require.Fail(t, "fn runs without the lock")
						return nil
					}), way.cause)
				}
				require.Equal(t, creates, proxy.Counts().Requests["create"])
			}
			refused()
			if way.cause == recipes.ErrClosed { //nolint:errorlint // a table's value
				_, err = m.Acquire(testContext(t))
				require.ErrorIs(t, err, recipes.ErrClosed)
				return
			}
			next := acquire(t, m) // the same value works again, and is of no use to the old contexts
			require.Greater(t, next.FencingToken(), lease.FencingToken())
			refused()
			if way.cause != recipes.ErrReleased { //nolint:errorlint // a table's value
				for _, lost := range []*recipes.Lease{lease, inner} {
					require.ErrorIs(t, lost.Release(), way.cause, "the loss is told once")
					require.ErrorIs(t, lost.Release(), recipes.ErrNotHeld)
				}
			}
			require.NoError(t, next.Context().Err())
			require.NoError(t, next.Release())
			eventually(t, func() bool { return len(children(t, path)) == 0 }, "no znode is left")
		})
	}
}

// expireUnheard ends the client's session while it is cut off, as expiries are: it
// hears of it at its next handshake. On a living connection it could hear first of
// its znode's deletion, and think that this is all.
func expireUnheard(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
	t.Helper()
	session := client.Conn().SessionID()
	proxy.Refuse(true)
	proxy.Cut()
	require.NoError(t, zkadmin.Expire(testContext(t), ensemble.Shared(t).Server(0), session))
	proxy.Refuse(false)
}
