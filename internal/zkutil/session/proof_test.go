package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// grantAfterStall stalls the connection of a waiter for a while, and grants it the lock shortly after that.
func grantAfterStall(t *testing.T, timeout, stall, phase time.Duration) (srv *fixture.Ensemble, s *session.Session, got bubble.Outcome[*session.Entry]) {
	t.Helper()
	srv = fixture.NewEnsemble(t)
	holder, s := fixture.TwoClients(t, srv, timeout)
	e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
	turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
	bubble.Pass(timeout*9/8 + phase)
	srv.Freeze(srv.B)
	bubble.Pass(stall)
	srv.Heal(srv.B)
	bubble.Pass(timeout / 5)
	require.NoError(t, e.Leave())
	got = <-turn
	require.NoError(t, got.Err)
	return srv, s, got
}

// The connection of a waiter stalls, and its turn arrives shortly after that. The effect of the grant's proof is limited.
// The hold ends with its trust, not when the next heartbeat would be due.
func TestHoldOnALimitedProofEndsWithItsTrust(t *testing.T) {
	const timeout = 6 * time.Second
	for stall := timeout / 2; stall < timeout*13/20; stall += timeout / 20 {
		for phase := time.Duration(0); phase < timeout/6; phase += timeout / 24 {
			testkit.Bubble(t, func(t *testing.T) {
				srv, s, got := grantAfterStall(t, timeout, stall, phase)
				until := got.Lease.TrustedUntil()
				srv.Partition(fixture.SessionID(s))
				at, _ := bubble.Ended(t, got.Lease)
				require.LessOrEqual(t, at.Sub(until), time.Millisecond, "stall %v phase %v: granted at %v, trusted for %v", stall, phase, got.At, until.Sub(got.At))
				srv.Heal()
			})
		}
	}
}

// The same, and the connection keeps working. The hold is proven again before its trust ends.
func TestHoldOnALimitedProofIsKept(t *testing.T) {
	const timeout = 6 * time.Second
	for stall := timeout / 2; stall < timeout*11/20; stall += timeout / 20 {
		for phase := time.Duration(0); phase < timeout/6; phase += timeout / 24 {
			testkit.Bubble(t, func(t *testing.T) {
				_, _, got := grantAfterStall(t, timeout, stall, phase)
				bubble.Pass(timeout)
				require.NoError(t, got.Lease.Context().Err(), "stall %v phase %v", stall, phase)
				require.NoError(t, got.Lease.Leave())
			})
		}
	}
}

// A grant does not rest on a proof that is about to end, so that a lease on a healthy ensemble is kept.
func TestGrantOnAProofThatIsAboutToEnd(t *testing.T) {
	const timeout, commit = 6 * time.Second, 100 * time.Millisecond
	for before := 10 * time.Millisecond; before < commit; before += 40 * time.Millisecond {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			holder, s := fixture.TwoClients(t, srv, timeout)
			e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
			start := time.Now()
			turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
			srv.Delay(zktest.OpMulti, commit)
			bubble.Pass(time.Until(start.Add(timeout*2/3 - before)))
			require.NoError(t, e.Leave())
			got := <-turn
			require.NoError(t, got.Err)
			bubble.Pass(timeout)
			require.NoError(t, got.Lease.Context().Err(), "lost, though the ensemble is healthy, %v before", before)
			require.NoError(t, got.Lease.Leave())
		})
	}
}

// A grant that shares another one's proof waits for the proof, not for the list that the other one requested after it.
func TestGrantDoesNotWaitForTheListOfAnother(t *testing.T) {
	const timeout, commit, listing = 6 * time.Second, 10 * time.Millisecond, 500 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		listed := fixture.MutexOn(s, "/listed")
		listed.AlwaysList = true
		slow, quick := bubble.Acquire(t, fixture.MutexOn(holder, "/listed").Acquire), bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		slowTurn, quickTurn := bubble.Start(t.Context(), listed.Acquire), bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(5 * timeout)
		id := fixture.SessionID(s)
		srv.Delay(zktest.OpGetChildren2, listing, id)
		defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti || r.Session != id {
				return zktest.Fault{}
			}
			srv.Delete(quick.Path()) // while the proof is under way
			return zktest.Fault{Delay: commit}
		})()
		start := time.Now()
		srv.Delete(slow.Path())
		got := <-quickTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit, got.At.Sub(start))
		got = <-slowTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit+listing, got.At.Sub(start))
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), 1)
		_, _ = slow.Leave(), quick.Leave()
	})
}

// A proof whose sender stopped waiting is still in flight, so others share it.
func TestGrantSharesTheProofOfOneWhoHasGivenUp(t *testing.T) {
	const timeout, commit = 6 * time.Second, 100 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		first, second := bubble.Acquire(t, fixture.MutexOn(holder, "/a").Acquire), bubble.Acquire(t, fixture.MutexOn(holder, "/b").Acquire)
		ctx, giveUp := context.WithCancel(t.Context())
		firstTurn, secondTurn := bubble.Start(ctx, fixture.MutexOn(s, "/a").Acquire), bubble.Start(t.Context(), fixture.MutexOn(s, "/b").Acquire)
		bubble.Pass(5 * timeout)
		defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti || r.Session != fixture.SessionID(s) {
				return zktest.Fault{}
			}
			giveUp()
			srv.Delete(second.Path())
			return zktest.Fault{Delay: commit}
		})()
		start := time.Now()
		srv.Delete(first.Path())
		require.ErrorIs(t, (<-firstTurn).Err, context.Canceled)
		got := <-secondTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit, got.At.Sub(start))
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), 1)
		_, _ = first.Leave(), second.Leave()
	})
}
