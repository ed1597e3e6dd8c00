package core

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// premise is a premise that was wrong, by name.
type premise struct{ name string }

const (
	shortGaps         = "a time of T/4 without a request does no harm"
	syncProves        = "the answer to a sync proves the session"
	serverTells       = "the server tells when the session has expired"
	staleLists        = "a server that was left touches the session no more"
	noPingAhead       = "a late answer to a holder's write always means a slow quorum"
	lateMeansSlow     = "a late answer to a waiter's write always means a slow quorum"
	noLeaveOverWrites = "an unanswered heartbeat alone shows a silent server"
	sendsAreInstant   = "a frame goes out when the clock is read for it"
	pingsProve        = "the answer to a ping proves the session"
	wholeTimeout      = "a session lives for T after any committed write"
	threeQuarters     = "all clocks run at the same rate"
	fromAnswer        = "a write proves the session from its answer on"
	latestTimeout     = "the latest handshake says how long the session lives"
	createdTimeout    = "a handshake says nothing against the timeout of the creation"
	loginFirst        = "a handshake whose login fails grants nothing"
	handshakeNotes    = "a handshake is noted like any other request"
	noGaps            = "a server always has a recent request of a session"
	sendsReach        = "what was sent was received"
	oneGap            = "the latest gap alone counts"
	twelfthAfterGap   = "a twelfth is left for clocks after a gap"
	gapsEnd           = "a write after a gap proves the session in full"
	ownClock          = "reports are T/4 apart by the client's clock"
	ownUntil          = "a lower timeout counts from the next write on"
	lostForgotten     = "a handshake whose answer was lost is over once a later one is answered"

	worksNot        = "a client that closes can delete its znodes at once"
	sessionOutlives = "a session outlives its connection"
	anyOwner        = "whoever was let proceed may proceed"
	suspendedTurn   = "a claim needs no connection"
	keptUnsaved     = "a client that closes needs no heartbeats"
)

func (p *premise) has(name string) bool { return p != nil && p.name == name }

// op returns the operation that the application uses.
func (p *premise) op() int32 {
	if p.has(syncProves) {
		return proto.OpSync
	}
	return proto.OpCreate2
}

func (p *premise) onGranted(s *Session, id int64, granted time.Duration, beganAt time.Time, isLoginFailing bool) {
	switch {
	case p.has(loginFirst) && isLoginFailing:
	case p.has(ownUntil):
		until := s.until
		s.OnGranted(id, granted, beganAt)
		s.until = until
	default:
		s.OnGranted(id, granted, beganAt)
	}
}

// onEnd is called before a hold ends.
func (p *premise) onEnd(c *client) {
	if p.has(worksNot) {
		c.hold.Works = 0
	}
}

// afterEnd is called after a hold ended.
func (p *premise) afterEnd(c *client) {
	if p.has(worksNot) {
		c.hold.Works = 1
	}
	if p.has(keptUnsaved) && c.hold.isKept {
		c.hold.isKept = false
		c.core.kept--
	}
}

func (p *premise) judge(c *client, now time.Time) Verdict {
	claim := c.claim
	if p.has(anyOwner) {
		claim.Owner, claim.Epoch = c.core.ID, c.core.Epoch
	}
	return c.core.Judge(claim, now)
}

func (p *premise) onSession(c *client, id int64, granted time.Duration, isBound bool, now time.Time) Outcome {
	return c.core.OnHandshake(id, granted, isBound && !p.has(sessionOutlives), now)
}

func (p *premise) onHandshake(l *Ledger, granted time.Duration) {
	switch {
	case p.has(latestTimeout):
		l.leastTimeout = granted
	case p.has(createdTimeout):
		l.leastTimeout = whole
	case p.has(staleLists) || p.has(lostForgotten):
		l.leastTimeout = min(whole, granted) // of the creation and of the latest handshake
	}
}

func (p *premise) onContact(c *Contact) {
	if p.has(handshakeNotes) {
		c.isFresh, c.gaps = false, nil
	}
}

func (p *premise) onAnswer(c *Contact, now time.Time, isHolding bool, xid int32) (Frame, bool) {
	if p.has(sendsReach) {
		c.answeredSentAt = now
	}
	return c.OnAnswer(now, isHolding, xid, proto.CodeOK)
}

func (p *premise) record(s *Session, id int64, write Write) Outcome {
	if p.has(fromAnswer) {
		write.SentAt = write.CameAt
	}
	o, _ := s.OnWriteAnswered(id, write)
	if p.has(serverTells) {
		s.until = write.SentAt.Add(9 * whole)
	}
	return o
}

func (p *premise) limit(c *Contact, now, sentAt time.Time, horizon, timeout time.Duration) time.Time {
	limit := c.ProofLimit(now, sentAt, horizon, timeout)
	gaps := c.gaps
	switch {
	case p.has(wholeTimeout):
		return gaps.Limit(sentAt, timeout, timeout)
	case p.has(threeQuarters):
		return gaps.Limit(sentAt, timeout*3/4, timeout)
	case p.has(noGaps):
		return sentAt.Add(horizon)
	case p.has(shortGaps):
		long := slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return g.EndAt.Sub(g.StartAt) <= timeout/4 })
		return long.Limit(sentAt, horizon, timeout)
	case p.has(lateMeansSlow):
		shown := slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return g.IsLateWrite })
		return shown.Limit(sentAt, horizon, timeout)
	case p.has(ownClock):
		recent := slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return !sentAt.Before(g.EndAt.Add(timeout / 4)) })
		return recent.Limit(sentAt, horizon, timeout)
	case p.has(oneGap):
		return gaps[max(0, len(gaps)-1):].Limit(sentAt, horizon, timeout)
	case p.has(gapsEnd) && len(gaps) > 0 && !sentAt.Before(gaps[len(gaps)-1].EndAt):
		return sentAt.Add(horizon)
	case p.has(twelfthAfterGap) && limit.Before(sentAt.Add(horizon)):
		return limit.Add(timeout/MarginsPerTimeout - timeout/12)
	}
	return limit
}
