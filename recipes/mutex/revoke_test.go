package mutex_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// TestOtherDataIsNoRevocation: and a revocation is still seen after it.
func TestOtherDataIsNoRevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		listener, calls := locks.Revocations()
		lease := bubble.Acquire(f.T, f.Mutex(client, listener).Acquire)
		for _, data := range []string{"other", "", "__REVOKE__ ", "__revoke__", "__REVOKE_", " __REVOKE__"} {
			log := f.Srv.Observe()
			f.Srv.Put(lease.Path(), []byte(data))
			bubble.Pass(bubble.Moment)
			require.Positive(f, log.Count(zktest.OpGetData), "the change is noticed")
			log.Stop()
			require.False(f, locks.IsRevoked(lease))
		}
		f.Stands(lease)
		require.NoError(f, revoke.New(client).AttemptRevoke(f.Context(), lease.Path()))
		require.True(f, locks.IsRevoked(lease))
		f.RequireRevocation(calls, lease)
		require.NoError(f, lease.Release())
		require.Empty(f, calls)
	})
}
