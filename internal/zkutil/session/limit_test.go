package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// The limit of a hold uses the clock of trust, so it ends the hold while the machine is suspended and the timer stands
// still.
func TestLimitOfAHoldOnASuspendedMachine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, suspended := srv.Config(time.Minute), make(chan time.Duration, 1)
		suspended <- time.Hour // some time ago
		cfg.Suspended = func() time.Duration {
			d := <-suspended
			suspended <- d
			return d
		}
		s := fixture.Connect(t, cfg)
		q := fixture.MutexOn(s, "/m")
		q.MaxHold = 10 * time.Second
		e := bubble.Acquire(t, q.Acquire)
		require.Equal(t, 10*time.Second, time.Until(e.TrustedUntil()))
		suspended <- <-suspended + 10*time.Second
		require.False(t, e.Stands())
		require.ErrorIs(t, e.Loss(), zkutil.ErrMaxHold)
		require.Error(t, e.Context().Err())
		require.NoError(t, e.Leave())
		require.Empty(t, srv.Children("/m"))
	})
}
