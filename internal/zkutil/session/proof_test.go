package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// grantAfterStall lets the line of a waiter stand still for a while, and grants it the lock shortly after that.
func grantAfterStall(t *testing.T, timeout, stall, phase time.Duration) (srv *fixture.Ensemble, s *session.Session, got fixture.Granted) {
	t.Helper()
	srv = fixture.NewEnsemble(t)
	holder, s := fixture.TwoClients(t, srv, timeout)
	e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
	turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
	fixture.Pass(timeout*9/8 + phase)
	srv.Freeze(srv.B)
	fixture.Pass(stall)
	srv.Heal(srv.B)
	fixture.Pass(timeout / 5)
	require.NoError(t, e.Leave())
	got = <-turn
	require.NoError(t, got.Err)
	return srv, s, got
}

// The line of a waiter stands still, and its turn comes shortly after that: what the grant's proof proves is limited. The
// hold ends with its trust, not with the next time that a heartbeat would have been due.
func TestHoldOnALimitedProofEndsWithItsTrust(t *testing.T) {
	const timeout = 6 * time.Second
	for stall := timeout / 2; stall < timeout*13/20; stall += timeout / 20 {
		for phase := time.Duration(0); phase < timeout/6; phase += timeout / 24 {
			testkit.Bubble(t, func(t *testing.T) {
				srv, s, got := grantAfterStall(t, timeout, stall, phase)
				until := got.Entry.TrustedUntil()
				srv.Partition(fixture.SessionID(s))
				at, _ := fixture.Ended(t, got.Entry)
				require.LessOrEqual(t, at.Sub(until), time.Millisecond, "stall %v phase %v: granted at %v, trusted for %v", stall, phase, got.At, until.Sub(got.At))
				srv.Heal()
			})
		}
	}
}

// The same, and the line serves on: the hold is proven anew before its trust ends.
func TestHoldOnALimitedProofIsKept(t *testing.T) {
	const timeout = 6 * time.Second
	for stall := timeout / 2; stall < timeout*6/10; stall += timeout / 20 {
		for phase := time.Duration(0); phase < timeout/6; phase += timeout / 24 {
			testkit.Bubble(t, func(t *testing.T) {
				_, _, got := grantAfterStall(t, timeout, stall, phase)
				fixture.Pass(timeout)
				require.NoError(t, got.Entry.Context().Err(), "stall %v phase %v", stall, phase)
				require.NoError(t, got.Entry.Leave())
			})
		}
	}
}

// A grant does not rest on a proof that is about to end: a lease on a healthy ensemble is kept.
func TestGrantOnAProofThatIsAboutToEnd(t *testing.T) {
	const timeout, commit = 6 * time.Second, 100 * time.Millisecond
	for before := 10 * time.Millisecond; before < commit; before += 40 * time.Millisecond {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			holder, s := fixture.TwoClients(t, srv, timeout)
			e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
			start := time.Now()
			turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
			srv.Delay(zktest.OpMulti, commit)
			fixture.Pass(time.Until(start.Add(timeout*2/3 - before)))
			require.NoError(t, e.Leave())
			got := <-turn
			require.NoError(t, got.Err)
			fixture.Pass(timeout)
			require.NoError(t, got.Entry.Context().Err(), "lost, though the ensemble is healthy, %v before", before)
			require.NoError(t, got.Entry.Leave())
		})
	}
}
