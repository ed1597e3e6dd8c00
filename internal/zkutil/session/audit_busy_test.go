package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A session that always holds some lock, each for a short time, notices within 2T: by a read for missing events, and by
// an audit for a server that shows deleted znodes.
func TestWaiterMissesAnEventBesideShortHolds(t *testing.T) {
	const timeout = 6 * time.Second
	for _, isShown := range []bool{false, true} {
		for _, hold := range []time.Duration{timeout / 12, timeout / 4} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				other := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(timeout * 5 / 4)
				if at, _ := srv.Session(fixture.SessionID(s)); isShown {
					srv.KeepShowing(e.Path(), at.Server)
				}
				fixture.Untold(srv, func() { require.NoError(t, e.Leave()) })
				untold := time.Now()
				for time.Since(untold) < 30*timeout && len(turn) == 0 {
					beside := bubble.Acquire(t, fixture.MutexOn(s, "/beside").Acquire)
					bubble.Pass(hold)
					require.NoError(t, beside.Leave())
				}
				got := <-turn
				require.NoError(t, got.Err)
				require.LessOrEqual(t, got.At.Sub(untold), found(timeout), "holds of %v, shown: %v", hold, isShown)
				require.NoError(t, got.Lease.Leave())
				srv.Heal()
			})
		}
	}
}
