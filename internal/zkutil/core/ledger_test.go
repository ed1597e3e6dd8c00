package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// session is the timeout T of most tests here: heartbeats are due every 4 s.
const session = 24 * time.Second

func after(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

// standing returns a connected ledger of a session in use, whose latest proof was sent and answered at 0.
func standing() *Ledger {
	l := NewLedger(session, 0)
	l.OnHandshake(session, true)
	l.OnConnected()
	l.OnNewSession(after(0))
	l.OnUse(after(0))
	l.OnWriteAnswered(Write{SentAt: after(0), CameAt: after(0), IsCommitted: true, Line: freshLine{}})
	return &l
}

// decide returns the actions due at a moment on a connection to one of three servers.
func decide(l *Ledger, at time.Duration, holds int) Plan {
	return l.Decide(Facts{Now: after(at), IsConnected: true, IsInUse: true, Holds: holds, Addresses: 3})
}

// freshLine is a connection without gaps.
type freshLine struct{}

func (freshLine) ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	return Gaps(nil).Limit(sentAt, horizon, timeout)
}

// Of the timeouts granted to a session, trust counts on the least, and a pause of a whole session on the longest. Another
// session starts anew. Before the first handshake nothing but the timeout asked for is known.
func TestTimeoutsThroughHandshakes(t *testing.T) {
	const s = time.Second
	l := NewLedger(18*s, 0)
	require.Equal(t, 3*s, l.Period())
	l = NewLedger(3*s, 0)
	require.Equal(t, s, l.Period(), "servers may grant more than was asked for")
	for _, step := range []struct {
		granted                            time.Duration
		isNew                              bool
		timeout, lifetime, longest, period time.Duration
	}{
		{24 * s, true, 24 * s, 24 * s, 24 * s, 4 * s},
		{12 * s, false, 12 * s, 12 * s, 24 * s, 2 * s},
		{48 * s, false, 48 * s, 12 * s, 48 * s, 2 * s},
		{30 * s, false, 30 * s, 12 * s, 48 * s, 2 * s},
		{30 * s, true, 30 * s, 30 * s, 30 * s, 5 * s},
	} {
		if !step.isNew {
			l.OnGranted(step.granted, after(0))
		}
		l.OnHandshake(step.granted, step.isNew)
		l.OnConnected()
		got := []time.Duration{l.Timeout(), l.Lifetime(), l.LongestLifetime(), l.Period()}
		require.Equal(t, []time.Duration{step.timeout, step.lifetime, step.longest, step.period}, got, "%+v", step)
	}
}

// For any granted timeout, trust ends at the latest two thirds of the least timeout after the start of the handshake.
// A handshake never prolongs trust.
func TestHandshakesOnlyShortenTrust(t *testing.T) {
	for granted := time.Second; granted <= 2*session; granted += time.Second {
		for began := time.Duration(0); began < session; began += time.Second {
			l := standing()
			before := l.Until()
			isShortened := l.OnGranted(granted, after(began))
			bound := after(began).Add(2 * min(granted, session) / 3)
			if bound.Before(before) {
				require.Equal(t, bound, l.Until())
			} else {
				require.Equal(t, before, l.Until())
			}
			require.Equal(t, l.Until().Before(before), isShortened, "%v granted after %v", granted, began)
		}
	}
}

// A session stands from its first proof until trust ends.
func TestWhenASessionStands(t *testing.T) {
	l := standing()
	require.True(t, l.Stands(after(0)))
	require.True(t, l.Stands(l.Until().Add(-1)))
	require.False(t, l.Stands(l.Until()))
	l.OnNewSession(after(1))
	require.False(t, l.Stands(after(1)), "another session is not proven")
	require.Equal(t, time.Time{}, l.ProofSentAt())
}

// A new hold takes another proof only if the latest is older than T/6 and leaves less than T/3.
func TestThinProof(t *testing.T) {
	for age := time.Duration(0); age <= session/3; age += session / 48 {
		for left := session / 6; left <= session/2; left += session / 48 {
			l := standing()
			l.proofCameAt, l.until = after(-age), after(left)
			require.Equal(t, age > session/6 && left < session/3, l.IsThin(after(0)), "answered %v ago, %v left", age, left)
		}
	}
}

// For any answers, in any order and with any delay, trust lasts for two thirds of the timeout from the latest committed write,
// and a refused write changes nothing.
func TestTrustFollowsTheLatestCommittedWrite(t *testing.T) {
	for seed := range uint64(testkit.Shorter(1000, 100)) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, latest := standing(), time.Duration(0)
		for range 50 {
			sent, isCommitted := time.Duration(random.IntN(100))*time.Second, random.IntN(3) > 0
			isProof := l.OnWriteAnswered(Write{SentAt: after(sent), CameAt: after(sent + time.Second), IsCommitted: isCommitted, Line: freshLine{}})
			require.Equal(t, isCommitted && sent > latest, isProof, "seed %d", seed)
			if isProof {
				latest = sent
			}
			require.Equal(t, after(latest), l.ProofSentAt(), "seed %d", seed)
			require.Equal(t, after(latest+2*session/3), l.Until(), "seed %d", seed)
		}
	}
}

// A holder bears with a quorum that was slow: twice as long as commits took, half the session timeout at most, and half as long
// after each quick answer. No quick answer makes a holder less patient than a sixth.
func TestPatienceFollowsCommits(t *testing.T) {
	for took, quick := range map[time.Duration][]time.Duration{ // patience after 0, 1, 2… quick answers
		session / 4:  {session / 2, session / 4, session / 6},
		session / 2:  {session / 2, session / 2, session / 4, session / 6},
		session / 10: {session / 5, session / 6},
		0:            {session / 6},
	} {
		for n, patience := range quick {
			l := standing()
			l.OnWriteAnswered(Write{SentAt: after(0), CameAt: after(took), Line: freshLine{}})
			for range n {
				l.OnWriteAnswered(Write{SentAt: after(0), CameAt: after(0), Line: freshLine{}})
			}
			l.OnBeatSent(after(session / 100))
			l.until = after(session)
			sent := session / 100
			require.False(t, decide(l, sent+patience-1, 1).LeaveServer, "commits took %v, then %d were quick", took, n)
			require.True(t, decide(l, sent+patience, 1).LeaveServer, "commits took %v, then %d were quick", took, n)
		}
	}
}

// A holder leaves one silent server, and the next one only after a new proof. A client that left while it only waited did not
// use that up.
func TestHolderLeavesOneServer(t *testing.T) {
	for _, wasHolding := range []bool{true, false} {
		l := standing()
		l.OnBeatSent(after(4 * time.Second))
		require.True(t, decide(l, 8*time.Second, 1).LeaveServer)
		l.OnServerLeft(after(8*time.Second), wasHolding)
		require.Equal(t, !wasHolding, decide(l, 9*time.Second, 1).LeaveServer)
		l.OnWriteAnswered(Write{SentAt: after(9 * time.Second), CameAt: after(10 * time.Second), IsCommitted: true, Line: freshLine{}})
		l.OnBeatSent(after(10 * time.Second))
		require.True(t, decide(l, 14*time.Second, 1).LeaveServer)
	}
}

// A session that the servers end with its connection can't be saved elsewhere.
func TestBoundSessionLeavesNoServer(t *testing.T) {
	l := standing()
	l.OnBeatSent(after(4 * time.Second))
	require.True(t, decide(l, 9*time.Second, 1).LeaveServer)
	l.SetBound(true)
	require.True(t, l.IsBound())
	require.False(t, decide(l, 9*time.Second, 1).LeaveServer)
	l.SetBound(false)
	require.True(t, decide(l, 9*time.Second, 1).LeaveServer)
}

// Reads are due every T, T/6 where they take turns, and not beside reads in flight. The end of earlier reads does not end
// those in flight, and the end of the connection does.
func TestReadsOneAfterTheOther(t *testing.T) {
	for _, isInTurns := range []bool{false, true} {
		pause := session
		if isInTurns {
			pause = session / 6
		}
		for end, due := range map[string]bool{"": false, "earlier": false, "own": true, "disconnected": true, "left": true} {
			l := standing()
			l.OnLook(after(time.Second), isInTurns)
			require.False(t, decide(l, time.Second+pause-1, 0).Read)
			require.True(t, decide(l, time.Second+pause, 0).Read)
			l.OnReadsSent(after(2 * time.Second))
			switch end {
			case "earlier":
				l.OnReadsEnded(after(time.Second))
			case "own":
				l.OnReadsEnded(after(2 * time.Second))
			case "disconnected":
				l.OnDisconnected()
			case "left":
				l.OnServerLeft(after(3*time.Second), false)
			}
			require.Equal(t, due, decide(l, time.Second+pause, 0).Read, "in turns %v, ended %q", isInTurns, end)
		}
	}
}

// A heartbeat checks a holder's znode, after a refusal or on another connection only one of the session.
func TestPlainHeartbeats(t *testing.T) {
	l := standing()
	require.True(t, l.NeedsPlainBeat(), "the first one")
	l.OnBeatSent(after(1))
	require.False(t, l.NeedsPlainBeat())
	l.OnBeatEnded(after(1), false)
	require.False(t, l.NeedsPlainBeat())
	l.OnBeatSent(after(2))
	l.OnBeatEnded(after(2), true)
	require.True(t, l.NeedsPlainBeat(), "refused")
	l.OnBeatSent(after(3))
	l.OnDisconnected()
	require.True(t, l.NeedsPlainBeat(), "disconnected")
}

// At most four heartbeats of a holder are in flight. The answer to one ends it, and earlier ones.
func TestHeartbeatsInFlight(t *testing.T) {
	slow := func(n int) *Ledger {
		l := standing()
		l.OnWriteAnswered(Write{SentAt: after(0), CameAt: after(session / 2), Line: freshLine{}}) // so that it does not wait for answers
		l.until = after(2 * session)
		for i := range n {
			l.OnBeatSent(after(time.Duration(i)))
		}
		l.OnAnswer(after(session / 3))
		return l
	}
	for n := range 7 {
		require.Equal(t, n < MaxBeatsInFlight, decide(slow(n), session/3, 1).Beat, "%d in flight", n)
		for answered := range n {
			l := slow(n)
			l.OnWriteAnswered(Write{SentAt: after(time.Duration(answered)), CameAt: after(session / 2), Line: freshLine{}})
			require.Len(t, l.beatsSentAt, n-answered-1)
			l = slow(n)
			l.OnBeatEnded(after(time.Duration(answered)), false)
			require.Len(t, l.beatsSentAt, n-1)
			require.NotContains(t, l.beatsSentAt, after(time.Duration(answered)))
		}
	}
}

// Audits of a holder are T/2 apart, and those of a waiter 20 T to 25 T. A refused audit is due again.
func TestAudits(t *testing.T) {
	for _, jitter := range []float64{0, 0.4, 1} {
		rarely := time.Duration(float64(session) * (20 + 5*jitter))
		l := NewLedger(session, jitter)
		first := standing()
		l.record, l.hasConnected, l.inUseSince = first.record, true, after(0)
		require.False(t, decide(&l, rarely-1, 0).Audit, "the first, jitter %v", jitter)
		require.True(t, decide(&l, rarely, 0).Audit, "the first, jitter %v", jitter)
		l.OnAudit(after(time.Hour), 1-jitter)
		rarely = time.Hour + time.Duration(float64(session)*(20+5*(1-jitter)))
		require.False(t, decide(&l, rarely-1, 0).Audit)
		require.True(t, decide(&l, rarely, 0).Audit)
		l.until = after(2 * time.Hour)
		l.OnFirstHold(after(time.Hour + time.Second))
		l.OnFirstHold(after(time.Hour + 2*time.Second)) // no audit or read in between: one period of holding
		at := time.Hour + time.Second + session/2
		require.False(t, decide(&l, at-1, 1).Audit)
		require.True(t, decide(&l, at, 1).Audit)
		l.OnAuditRefused()
		require.True(t, decide(&l, at, 1).Audit)
	}
}

// A waiter that doubts a watched znode audits T/6 to T/2 later, but not within T of its latest audit.
func TestDoubts(t *testing.T) {
	const doubted = 10 * session
	for _, test := range []struct {
		since  time.Duration // the latest audit
		due    time.Duration // after the doubt
		jitter float64
	}{
		{5 * session, session / 6, 0},
		{5 * session, session / 3, 0.5},
		{5 * session, session / 2, 1},
		{session, session / 6, 0},
		{session / 2, session / 2, 0},
		{0, session, 1},
	} {
		l := standing()
		l.OnAudit(after(doubted-test.since), test.jitter)
		f := Facts{IsConnected: true, IsInUse: true, Addresses: 3, DoubtedAt: after(doubted)}
		f.Now = after(doubted + test.due - 1)
		require.False(t, l.Decide(f).Audit, test)
		f.Now = after(doubted + test.due)
		require.True(t, l.Decide(f).Audit, test)
	}
}

// A session in use again is not late with checks that were due while it was idle.
func TestUseAfterATimeWithout(t *testing.T) {
	l := standing()
	l.OnUse(after(time.Hour))
	p := decide(l, time.Hour, 0)
	require.Equal(t, Plan{NextAt: after(time.Hour + session/6)}, p)
	require.False(t, decide(l, time.Hour+session-1, 0).Read)
	require.True(t, decide(l, time.Hour+session, 0).Read)
}

// A session that replaces a lost one, while callers wait, is not late with the checks of that one.
func TestNewSessionIsNotLateWithChecks(t *testing.T) {
	l := standing()
	const began = time.Hour
	l.OnNewSession(after(began))
	for holds := range 2 {
		l.until = after(2 * time.Hour)
		require.False(t, decide(l, began+session-1, 0).Read)
		require.True(t, decide(l, began+session, 0).Read)
		audit := began + session*TimeoutsPerAudit
		if holds > 0 {
			audit = began + session/AuditsPerTimeout
		}
		require.False(t, decide(l, audit-1, holds).Audit, "%d holds", holds)
		require.True(t, decide(l, audit, holds).Audit, "%d holds", holds)
	}
}

// A holder that tolerates a silent server, of one or of several addresses, has at least T/8 left to connect to another one,
// even if its latest proof was sent a whole period before the unanswered heartbeat.
func TestPatienceLeavesTimeForAnotherServer(t *testing.T) {
	for _, timeout := range []time.Duration{session / 10, session, time.Hour} {
		period := timeout / BeatsPerTimeout
		for _, patience := range []time.Duration{period, LonePatience(timeout)} {
			require.GreaterOrEqual(t, Horizon(timeout)-period-patience, timeout/8)
		}
		require.Greater(t, LonePatience(timeout), period, "a server of several behind one address gets longer")
		require.Equal(t, timeout*3/4-timeout/12, Horizon(timeout), "certain, less the margin")
		require.Equal(t, timeout/3, ReadPatience(timeout))
		require.Equal(t, timeout-2*timeout/3, EarliestEndAfterDisconnect(timeout), "zk.Conn notices silence after 2T/3")
	}
}

// The owner looks again when anything may be due: decisions at every moment differ in nothing from those at the moments
// that plans name.
func TestNoDecisionIsMissedBetweenPlans(t *testing.T) {
	for seed := range uint64(testkit.Shorter(200, 40)) {
		random := rand.New(rand.NewPCG(seed, 1))
		l, holds := standing(), random.IntN(2)
		moment := func() time.Time { return after(time.Duration(random.Int64N(int64(session)))) }
		l.OnLook(moment(), random.IntN(2) == 0)
		l.OnAudit(moment(), random.Float64())
		l.OnWriteAnswered(Write{SentAt: moment(), CameAt: after(session), IsCommitted: random.IntN(2) == 0, Line: freshLine{}})
		for range random.IntN(3) {
			l.OnBeatSent(after(session))
		}
		l.isBound = random.IntN(4) == 0
		facts := Facts{IsConnected: random.IntN(4) > 0, IsInUse: true, Holds: holds, Addresses: 1 + random.IntN(3), ChangedAt: after(session)}
		facts.IsSuspended = !facts.IsConnected
		facts.Now = after(session)
		plan := l.Decide(facts)
		for now := facts.Now; now.Before(after(2 * session)); now = now.Add(session / 96) {
			if !plan.NextAt.IsZero() && !now.Before(plan.NextAt) {
				break
			}
			facts.Now = now
			next := l.Decide(facts)
			next.NextAt = plan.NextAt
			require.Equal(t, plan, next, "seed %d, after %v", seed, now.Sub(after(session)))
		}
	}
}
