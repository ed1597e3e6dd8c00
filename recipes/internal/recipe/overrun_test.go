package recipe_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// If a function of Do continues after a loss, another contender may work at the same time. So the overrun is reported, after
// a second and then every minute.
func TestFunctionOfDoThatGoesOnAfterALoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID("web-1"))
		err := f.Mutex(client).Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
			f.Srv.Delete(lease.Path())
			<-ctx.Done()
			require.Len(f, locks.TakeLog(log), 1, "the loss")
			bubble.Pass(time.Second - bubble.Moment - time.Millisecond)
			require.Empty(f, log.Take())
			bubble.Pass(2*time.Minute + time.Millisecond)
			lines := log.Take()
			require.Len(f, lines, 3)
			for i, overrun := range []string{"1s", "1m1s", "2m1s"} {
				require.Regexp(f, `^level=WARN msg="work still running after its term ended" path=/locks/a token=\d+ id=web-1 for=`+overrun+
					` cause="znode deleted by another client"$`, lines[i])
			}
			return nil
		})
		require.ErrorIs(f, err, recipes.ErrNodeDeleted)
		bubble.Pass(10 * time.Minute)
		require.Empty(f, log.Take())
	})
}

// A function that outlasts its context is reported even without a loss, because it keeps others out or works without the lock.
func TestFunctionOfDoThatOutlastsItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(f *locks.Fixture, client *recipes.Client, lease *recipes.Lease, cancel context.CancelCauseFunc)
		opts  []mutex.Option
		cause string
	}{
		"context of Do": {cause: `"no database"`, end: func(_ *locks.Fixture, _ *recipes.Client, _ *recipes.Lease, cancel context.CancelCauseFunc) {
			cancel(locks.ErrWork)
		}},
		"release": {cause: `released`, end: func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease, _ context.CancelCauseFunc) {
			require.NoError(f, lease.Release())
		}},
		"max hold": {
			cause: `"held for the maximum time"`, opts: []mutex.Option{mutex.WithMaxHold(time.Second)},
			end: func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease, _ context.CancelCauseFunc) {
				require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
			},
		},
		"Close": {cause: `closed`, end: func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease, _ context.CancelCauseFunc) {
			require.NoError(f, client.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				log := &testkit.Log{}
				client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID("web-1"))
				ctx, cancel := context.WithCancelCause(f.Context())
				_ = f.Mutex(client, c.opts...).Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
					c.end(f, client, lease, cancel)
					<-ctx.Done()
					locks.TakeLog(log)
					bubble.Pass(time.Second + time.Minute)
					lines := log.Take()
					require.Len(f, lines, 2)
					for i, overrun := range []string{"1s", "1m1s"} {
						require.Regexp(f, `^level=WARN msg="work still running after its term ended" path=/locks/a token=\d+ id=web-1 for=`+overrun+` cause=`+c.cause+`$`, lines[i])
					}
					return nil
				})
				bubble.Pass(10 * time.Minute)
				require.Empty(f, log.Take())
			})
		})
	}
}
