package dial

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// No user function is called for a caller that gave up, or once the session refuses calls.
func TestNoUserCodeAfterTheEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := New(t.Context(), Config{}, &testOwner{patience: time.Second})
		requireRefused := func(ctx context.Context, expected error) {
			for range 20 {
				require.ErrorIs(t, d.Call(ctx, "test", func(context.Context) error { t.Error("called"); return nil }), expected)
				synctest.Wait()
			}
		}
		require.NoError(t, d.Call(t.Context(), "test", func(context.Context) error { return nil }))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		requireRefused(ctx, context.Canceled)
		<-d.FinishUserCalls()
		requireRefused(t.Context(), zkutil.ErrClosed)
	})
}
