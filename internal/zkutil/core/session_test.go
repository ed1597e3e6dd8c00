package core

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

const timeout = 30 * time.Second

// held returns a connected session with one hold, which is proven for 2T/3 from at(0) on.
func held(suspendEnds, isBound bool) (*Session, *Hold) {
	s := NewSession(NewLedger(timeout, 0), suspendEnds)
	s.OnHandshake(7, timeout, isBound, at(0))
	s.OnConnected(at(0))
	s.OnWriteAnswered(7, Write{SentAt: at(0), CameAt: at(0), IsCommitted: true, Line: noGap{}})
	h := s.OnGrant(Claim{Owner: 7, Epoch: 1}, at(0))
	return &s, &h
}

func at(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }

// noGap is a connection without gaps.
type noGap struct{}

func (noGap) ProofLimit(sentAt time.Time, horizon, _ time.Duration) time.Time {
	return sentAt.Add(horizon)
}

var errCut = errors.New("cut")

// Each key is an event of a session that has a hold.
func TestOutcomes(t *testing.T) {
	type changes = []Change
	const horizon = timeout * 2 / 3
	for name, test := range map[string]struct {
		suspends, isBound bool
		event             func(*Session) Outcome
		cause             error
		isOver            bool
		enter             changes
		until             time.Duration
		isAfter           bool // the session was over before the event
	}{
		"a disconnect": {
			event: func(s *Session) Outcome { return s.OnDisconnected(errCut, at(1)) },
			enter: changes{{From: connstate.Connected, To: connstate.Suspended, Why: errCut}},
		},
		"a second disconnect": {event: func(s *Session) Outcome { s.OnDisconnected(errCut, at(1)); return s.OnDisconnected(errCut, at(2)) }},
		"a disconnect that ends holds": {
			suspends: true,
			event:    func(s *Session) Outcome { return s.OnDisconnected(errCut, at(1)) },
			cause:    zkutil.ErrSuspended, until: 1,
			enter: changes{{From: connstate.Connected, To: connstate.Suspended, Why: errCut}},
		},
		"a disconnect from servers that resume no session": {
			isBound: true,
			event:   func(s *Session) Outcome { return s.OnDisconnected(errCut, at(1)) },
			cause:   zkutil.ErrSessionLost, until: 1, isOver: true,
			enter: changes{{From: connstate.Connected, To: connstate.Suspended, Why: errCut}, {From: connstate.Suspended, To: connstate.Lost, Why: ErrBound}},
		},
		"a disconnect that ends holds, from such servers": {
			suspends: true, isBound: true,
			event: func(s *Session) Outcome { return s.OnDisconnected(errCut, at(1)) },
			cause: zkutil.ErrSuspended, until: 1, isOver: true,
			enter: changes{{From: connstate.Connected, To: connstate.Suspended, Why: errCut}, {From: connstate.Suspended, To: connstate.Lost, Why: ErrBound}},
		},
		"a reconnect of the session": {
			event: func(s *Session) Outcome {
				s.OnDisconnected(errCut, at(1))
				require.Zero(t, s.OnHandshake(7, timeout, false, at(2)))
				return s.OnConnected(at(2))
			},
			enter: changes{{From: connstate.Suspended, To: connstate.Reconnected}},
		},
		"a handshake of another session": {
			event: func(s *Session) Outcome {
				s.OnDisconnected(errCut, at(1))
				return s.OnHandshake(8, timeout, false, at(2))
			},
			cause: zkutil.ErrSessionLost, until: 2, isOver: true,
			enter: changes{{From: connstate.Suspended, To: connstate.Lost, Why: ErrExpired}},
		},
		"a handshake of another session, long after": {
			event: func(s *Session) Outcome { return s.OnHandshake(8, timeout, false, at(timeout)) },
			cause: zkutil.ErrSessionLost, until: horizon, isOver: true,
			enter: changes{{From: connstate.Connected, To: connstate.Lost, Why: ErrExpired}},
		},
		"a handshake after the end of the session": {
			event: func(s *Session) Outcome {
				s.OnSessionOver(errCut, at(1))
				return s.OnHandshake(8, timeout, false, at(2))
			},
			cause: zkutil.ErrSessionLost, until: 2, isOver: true, // of the holds, which ended before
		},
		"the end of the session": {
			event: func(s *Session) Outcome { return s.OnSessionOver(errCut, at(1)) },
			cause: zkutil.ErrSessionLost, until: 1, isOver: true,
			enter: changes{{From: connstate.Connected, To: connstate.Lost, Why: errCut}},
		},
		"a tick in trust": {event: func(s *Session) Outcome { o, _ := s.OnTick(Facts{Now: at(horizon - 1)}); return o }},
		"the end of trust": {
			event: func(s *Session) Outcome { o, _ := s.OnTick(Facts{Now: at(horizon)}); return o },
			cause: zkutil.ErrSessionLost, until: horizon,
			enter: changes{{From: connstate.Connected, To: connstate.Lost, Why: ErrUnproven}},
		},
		"a tick after the loss": {
			event: func(s *Session) Outcome {
				s.OnDisconnected(errCut, at(1))
				s.OnEnd(new(Hold), s.OnSessionOver(errCut, at(2)).End)
				o, _ := s.OnTick(Facts{Now: at(timeout)})
				return o
			},
			isAfter: true,
		},
		"a handshake during a close": {
			event: func(s *Session) Outcome {
				s.OnClose(at(1))
				o := s.OnHandshake(8, timeout, false, at(2))
				require.EqualValues(t, 8, s.ID)
				return o
			},
			cause: zkutil.ErrSessionLost, until: 2, isOver: true, // of holds, which ended before
		},
		"a proof in a lost session": {
			event: func(s *Session) Outcome {
				s.OnTick(Facts{Now: at(horizon)})
				o, isProof := s.OnWriteAnswered(7, Write{SentAt: at(horizon), CameAt: at(timeout), IsCommitted: true, Line: noGap{}})
				require.True(t, isProof)
				return o
			},
			enter: changes{{From: connstate.Lost, To: connstate.Reconnected}},
		},
		"a proof in a lost session that is not connected": {
			event: func(s *Session) Outcome {
				s.OnTick(Facts{Now: at(horizon)})
				s.OnDisconnected(errCut, at(horizon))
				o, isProof := s.OnWriteAnswered(7, Write{SentAt: at(horizon), CameAt: at(timeout), IsCommitted: true, Line: noGap{}})
				require.True(t, isProof)
				return o
			},
		},
		"a proof of another session": {
			event: func(s *Session) Outcome {
				o, isProof := s.OnWriteAnswered(8, Write{SentAt: at(1), CameAt: at(2), IsCommitted: true, Line: noGap{}})
				require.False(t, isProof)
				require.Equal(t, at(horizon), s.Until())
				return o
			},
		},
		"a close": {
			event: func(s *Session) Outcome { return s.OnClose(at(1)) },
			cause: zkutil.ErrClosed, until: 1,
			enter: changes{{From: connstate.Connected, To: connstate.Closed}},
		},
		"a disconnect after a close": {event: func(s *Session) Outcome { s.OnClose(at(1)); return s.OnDisconnected(errCut, at(2)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := held(test.suspends, test.isBound)
			o := test.event(s)
			require.ErrorIs(t, o.End.Cause, test.cause)
			require.Equal(t, test.cause == nil, o.End.Cause == nil)
			require.Equal(t, test.isOver, o.IsSessionOver)
			for i := range o.Enter {
				require.False(t, o.Enter[i].ProofSentAt.IsZero())
				o.Enter[i].ProofSentAt = time.Time{}
			}
			require.Equal(t, test.enter, o.Enter)
			if test.cause != nil {
				require.Equal(t, at(test.until), o.End.Until)
			}
			require.Equal(t, test.isOver || test.isAfter, s.ID != 7)
		})
	}
}

// What stays of the session before in the next one, and of one connection in the next.
func TestNextSessionAndConnection(t *testing.T) {
	s, h := held(false, false)
	require.Equal(t, at(0), s.ChangedAt)
	s.OnEnd(h, s.OnHandshake(8, timeout/2, false, at(1)).End)
	require.Equal(t, timeout/2, s.Lifetime(), "the timeout of the new session counts")
	require.Equal(t, timeout/2, s.LongestLifetime())
	s.OnDisconnected(errCut, at(2))
	s.OnHandshake(9, timeout, true, at(3))
	s.OnConnected(at(3))
	require.Equal(t, at(3), s.ChangedAt)
	require.EqualValues(t, 2, s.Epoch)
	require.Equal(t, timeout, s.Lifetime(), "it is longer than that of the session before")
	require.True(t, s.IsBound())
	require.Equal(t, Stale, s.Judge(Claim{Owner: 9, Epoch: 1}, at(3)))
	require.Equal(t, Unproven, s.Judge(Claim{Owner: 9, Epoch: 2}, at(3)))
}

// A timeout counts for the session to which it was granted.
func TestGrantedTimeout(t *testing.T) {
	s, _ := held(false, false)
	require.False(t, s.OnGranted(8, timeout/2, at(0)))
	require.Equal(t, timeout, s.Lifetime())
	require.True(t, s.OnGranted(7, timeout/2, at(0)))
	require.Equal(t, timeout/2, s.Lifetime())
}

// The plan at the end of trust is that of a session without holds.
func TestPlanAtTheEndOfTrust(t *testing.T) {
	s, _ := held(false, false)
	o, p := s.OnTick(Facts{Now: at(timeout * 2 / 3), Addresses: 3})
	require.Equal(t, zkutil.ErrSessionLost, o.End.Cause)
	require.Equal(t, at(0), o.End.ProofSentAt)
	require.False(t, p.EndHolds, "again")
	require.True(t, p.Beat, "because only a heartbeat can show that the session lives")
	require.False(t, p.NextAt.IsZero())
}

// A holder leaves one silent server, and not a second one before a proof. A znode that stays counts as a hold.
func TestServerIsLeftOnce(t *testing.T) {
	for name, isKept := range map[string]bool{"a hold": false, "a znode that stays": true} {
		t.Run(name, func(t *testing.T) {
			s, h := held(false, false)
			if isKept {
				h.BeginWork()
				s.OnEnd(h, s.OnClose(at(0)).End)
			}
			silent := Facts{Now: at(timeout / 2), Addresses: 3, WriteSentAt: at(timeout / 6)}
			_, p := s.OnTick(silent)
			require.True(t, p.LeaveServer)
			_, p = s.OnTick(silent)
			require.False(t, p.LeaveServer)
		})
	}
}

// The wire has facts while it can send something.
func TestHasLineFacts(t *testing.T) {
	s, h := held(false, false)
	require.True(t, s.HasLineFacts())
	s.OnEnd(h, s.EndNow(zkutil.ErrReleased, at(1)))
	require.False(t, s.HasLineFacts(), "nothing is in use")
	require.True(t, s.BeginUse())
	require.False(t, s.BeginUse())
	require.True(t, s.HasLineFacts())
	s.OnDisconnected(errCut, at(1))
	require.False(t, s.HasLineFacts(), "there is no connection")
}

// The phases follow each other.
func TestPhases(t *testing.T) {
	s, _ := held(false, false)
	require.Equal(t, Running, s.Phase)
	require.True(t, s.MayWork())
	s.OnClose(at(1))
	require.Equal(t, Closing, s.Phase)
	s.Seal()
	require.Equal(t, Sealed, s.Phase)
	s.OnClose(at(2))
	require.Equal(t, Sealed, s.Phase)
}

// The grant of a term keeps its znode, and a kept znode of a session that is over is not saved any more.
func TestKeptZnodeIsLostWithItsSession(t *testing.T) {
	s, _ := held(false, false)
	term := s.OnGrant(Claim{Owner: 7, Epoch: 1, KeepsNode: true}, at(0))
	require.Equal(t, Stays, s.OnEnd(&term, s.EndNow(zkutil.ErrReleased, at(1))))
	require.Equal(t, 2, s.Saved())
	s.OnSessionOver(errCut, at(2))
	require.Equal(t, 1, s.Saved(), "the hold stands until the owner ends it")
	s.OnHandshake(7, timeout, false, at(3)) // the id returns
	s.OnVacate(&term)
	require.Equal(t, 1, s.Saved())
	require.True(t, s.IsInUse())
}

// The end of a session names its latest proof, although the next session has none yet.
func TestEndNamesTheLatestProof(t *testing.T) {
	s, _ := held(false, false)
	require.Equal(t, at(0), s.OnHandshake(8, timeout, false, at(time.Second)).End.ProofSentAt)
	require.Zero(t, s.ProofSentAt())
	require.False(t, s.Stands(at(time.Second)), "no write proved the next session")
}

// The first connection is Connected. An end of a session before it is no change of the state.
func TestFirstConnection(t *testing.T) {
	s := NewSession(NewLedger(timeout, 0), false)
	require.Empty(t, s.OnSessionOver(errCut, at(0)).Enter)
	require.Empty(t, s.OnHandshake(7, timeout, false, at(0)).Enter)
	require.Equal(t, []Change{{From: connstate.Suspended, To: connstate.Connected}}, s.OnConnected(at(0)).Enter)
	require.EqualValues(t, 1, s.Epoch)
}

// Each key completes "the znode of a hold …".
func TestFates(t *testing.T) {
	cause := func(err error) End { return End{Cause: err, Until: at(1)} }
	for name, test := range map[string]struct {
		prepare func(*Hold)
		end     End
		fate    Fate
		cause   error // nil: that of end
		isKept  bool
	}{
		"that is released is deleted by the caller":          {end: cause(zkutil.ErrReleased), fate: GoesLater},
		"of a client that closes is deleted by the caller":   {end: cause(zkutil.ErrClosed), fate: GoesLater},
		"that is lost is deleted at once":                    {end: cause(zkutil.ErrSessionLost), fate: GoesAtOnce},
		"that is suspended is deleted at once":               {end: cause(zkutil.ErrSuspended), fate: GoesAtOnce},
		"that was deleted is looked for":                     {end: cause(zkutil.ErrNodeDeleted), fate: GoesAtOnce},
		"that an exchange deleted is gone, and released":     {prepare: (*Hold).ExpectDeletion, end: cause(zkutil.ErrNodeDeleted), fate: IsGone, cause: zkutil.ErrReleased},
		"is lost during an exchange with its session":        {prepare: (*Hold).ExpectDeletion, end: cause(zkutil.ErrSessionLost), fate: GoesAtOnce},
		"stays for work when the client closes":              {prepare: (*Hold).BeginWork, end: cause(zkutil.ErrClosed), fate: Stays, isKept: true},
		"does not stay for work after a release":             {prepare: (*Hold).BeginWork, end: cause(zkutil.ErrReleased), fate: GoesLater},
		"does not stay for work after a loss":                {prepare: (*Hold).BeginWork, end: cause(zkutil.ErrSessionLost), fate: GoesAtOnce},
		"stays until the end of the work is written":         {prepare: (*Hold).BeginWriting, end: cause(zkutil.ErrReleased), fate: Stays, isKept: true},
		"stays for the end of the work, unsaved, after loss": {prepare: (*Hold).BeginWriting, end: cause(zkutil.ErrSessionLost), fate: Stays},
		"of a leader stays":                                  {prepare: leads, end: cause(zkutil.ErrReleased), fate: Stays, isKept: true},
		"of a leader stays at the limit of the term":         {prepare: leads, end: cause(zkutil.ErrMaxHold), fate: Stays, isKept: true},
		"of a leader stays after a loss, but is not saved":   {prepare: leads, end: cause(zkutil.ErrSessionLost), fate: Stays},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := held(false, false)
			if test.prepare != nil {
				test.prepare(h)
			}
			require.Equal(t, test.fate, s.OnEnd(h, test.end))
			want := test.cause
			if want == nil {
				want = test.end.Cause
			}
			require.Equal(t, want, h.Cause)
			require.Equal(t, at(1), h.Until)
			require.Zero(t, s.Standing)
			require.Equal(t, test.isKept, s.Saved() == 1)
			require.Equal(t, test.isKept, s.IsInUse())
			require.Equal(t, test.isKept, s.HasHoldToSave(at(1)))
			require.Equal(t, test.fate != Stays, h.IsVacated)
			require.Equal(t, None, s.OnEnd(h, cause(zkutil.ErrSuspended)), "a second end")
			require.Equal(t, want, h.Cause)
			s.OnVacate(h)
			require.Zero(t, s.Saved())
			require.False(t, s.IsInUse())
			require.True(t, h.IsVacated)
		})
	}
}

func leads(h *Hold) { h.KeepsNode = true }

// The znode that stays for work is deleted at the end of all work, unless that happened before or the candidate does so.
func TestEndOfWork(t *testing.T) {
	s, h := held(false, false)
	h.BeginWork()
	h.BeginWork()
	require.Equal(t, Stays, s.OnEnd(h, s.EndNow(zkutil.ErrClosed, at(1))))
	require.False(t, h.EndWork(), "there is more work")
	require.True(t, h.EndWork())

	_, h = held(false, false)
	h.BeginWork()
	require.False(t, h.EndWork(), "the hold stands")

	s, h = held(false, false)
	h.BeginWork()
	s.OnEnd(h, s.EndNow(zkutil.ErrSessionLost, at(1)))
	require.False(t, h.EndWork(), "the znode is being deleted")

	s, h = held(false, false)
	leads(h)
	h.BeginWork()
	s.OnEnd(h, s.EndNow(zkutil.ErrClosed, at(1)))
	require.False(t, h.EndWork(), "of a leader")
}

// A part has no znode, and counts as no hold.
func TestPart(t *testing.T) {
	s, _ := held(false, false)
	part := NewPart()
	require.True(t, s.IsExpired(&part, at(timeout)))
	require.False(t, s.IsExpired(&part, at(1)))
	require.Equal(t, None, s.OnEnd(&part, s.EndNow(zkutil.ErrReleased, at(1))))
	require.Equal(t, zkutil.ErrReleased, part.Cause)
	require.False(t, s.IsExpired(&part, at(timeout)), "it ended")
	require.Equal(t, 1, s.Standing)
}

// A znode that stays is saved like a hold, with heartbeats. They continue after the end of trust, because a proof may save it yet.
func TestKeptZnodeIsSaved(t *testing.T) {
	s, h := held(false, false)
	h.BeginWork()
	s.OnEnd(h, s.OnClose(at(1)).End)
	require.Equal(t, Closing, s.Phase)
	require.False(t, s.MayWork())
	_, p := s.OnTick(Facts{Now: at(timeout / 6), Addresses: 3})
	require.True(t, p.Beat)
	o, p := s.OnTick(Facts{Now: at(timeout * 2 / 3), Addresses: 3})
	require.Zero(t, o.End, "there is no hold to end")
	require.True(t, p.Beat)
}

// The session whose znodes may outlive its connection is that of servers that resume none.
func TestMayOldSessionLive(t *testing.T) {
	s, _ := held(false, true)
	s.OnDisconnected(errCut, at(0))
	require.True(t, s.MayOldSessionLive(at(2*timeout-1)))
	require.False(t, s.MayOldSessionLive(at(2*timeout)))
	s, _ = held(false, false)
	s.OnDisconnected(errCut, at(0))
	require.False(t, s.MayOldSessionLive(at(1)))
}

// A znode is known to be deleted if an event said so, or with its session.
func TestIsZnodeGone(t *testing.T) {
	s, h := held(false, false)
	require.False(t, s.IsZnodeGone(h))
	leads(h)
	s.OnEnd(h, s.EndNow(zkutil.ErrReleased, at(1)))
	require.False(t, s.IsZnodeGone(h), "it stays")
	s.OnSessionOver(errCut, at(2))
	require.True(t, s.IsZnodeGone(h))

	_, h = held(false, false)
	s.OnEnd(h, s.EndNow(zkutil.ErrNodeDeleted, at(1)))
	require.True(t, s.IsZnodeGone(h))
}
