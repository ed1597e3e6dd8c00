package session_test

import (
	"context"
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

// A grant that shares the proof of another waits for the proof, not for the list that the other one has asked for behind it.
func TestGrantDoesNotWaitForTheListOfAnother(t *testing.T) {
	const timeout, commit, listing = 6 * time.Second, 10 * time.Millisecond, 500 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		listed := fixture.MutexOn(s, "/listed")
		listed.AlwaysList = true
		slow, quick := fixture.Acquire(t, fixture.MutexOn(holder, "/listed")), fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
		slowTurn, quickTurn := fixture.AcquireLater(t.Context(), listed), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		fixture.Pass(5 * timeout)
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

// A proof that its sender does not wait for any more is under way all the same: others share it.
func TestGrantSharesTheProofOfOneWhoHasGivenUp(t *testing.T) {
	const timeout, commit = 6 * time.Second, 100 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		first, second := fixture.Acquire(t, fixture.MutexOn(holder, "/a")), fixture.Acquire(t, fixture.MutexOn(holder, "/b"))
		ctx, giveUp := context.WithCancel(t.Context())
		firstTurn, secondTurn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/a")), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/b"))
		fixture.Pass(5 * timeout)
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

// On an adopted connection, an answer that is lost leaves its request unanswered for as long as the connection lives. Those who share such a
// proof go on when something else proves the session: the delete of the sender who gives up, or the create of another lock.
func TestGrantSharesAProofWithoutAnAnswer(t *testing.T) {
	const timeout = 6 * time.Second
	for name, givesUp := range map[string]bool{"whose sender gives up": true, "whose sender waits": false} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s, _ := fixture.Adopt(t, srv, timeout)
				holder := fixture.Connect(t, srv.Config(timeout, srv.B))
				first, second := fixture.Acquire(t, fixture.MutexOn(holder, "/a")), fixture.Acquire(t, fixture.MutexOn(holder, "/b"))
				ctx, giveUp := context.WithCancel(t.Context())
				firstTurn, secondTurn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/a")), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/b"))
				fixture.Pass(5 * timeout)
				id, isLost := fixture.SessionID(s), false
				defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpMulti || r.Session != id || isLost {
						return zktest.Fault{}
					}
					isLost = true
					srv.Delete(second.Path())
					return zktest.Fault{Lost: zktest.AnswerLost}
				})()
				srv.Delete(first.Path())
				fixture.Pass(100 * time.Millisecond)
				if givesUp {
					giveUp()
					require.ErrorIs(t, (<-firstTurn).Err, context.Canceled)
				} else {
					require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/c")).Leave())
				}
				fixture.Pass(100 * time.Millisecond)
				require.Len(t, secondTurn, 1)
				got := <-secondTurn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())
				giveUp()
				srv.Disconnect(id) // zk.Conn ends the request
				_, _ = first.Leave(), second.Leave()
			})
		})
	}
}
