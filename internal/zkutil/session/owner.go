package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// wireOwner is the session as its wire sees it.
type wireOwner struct {
	s       *Session
	connect context.Context //nolint:containedctx // of Connect, which bounds the dials before the first handshake
}

func (o wireOwner) Now() time.Time            { return o.s.clock.now() }
func (o wireOwner) Period() time.Duration     { return o.s.beatPeriod() }
func (o wireOwner) Patience() time.Duration   { return o.s.handshakePatience() }
func (o wireOwner) RoundPause() time.Duration { return o.s.roundPauseUntilClose() }
func (o wireOwner) IsSaving() bool            { return o.s.hasHoldToSave() }

// LimitDial keeps the dials before the first handshake within the context of Connect, because the
// user's dialer gets no context.
func (o wireOwner) LimitDial(patience time.Duration) (time.Duration, error) {
	if deadline, isBounded := o.connect.Deadline(); isBounded && o.s.hasNeverConnected() {
		patience = min(patience, time.Until(deadline))
	}
	if patience <= 0 {
		return 0, o.s.whyNotConnected()
	}
	return patience, nil
}

func (o wireOwner) OnHandshake(id int64, timeout time.Duration, beganAt time.Time) time.Duration {
	return o.s.onHandshake(id, timeout, beganAt)
}

func (o wireOwner) OnLostHandshake(beganAt time.Time) { o.s.onLostHandshake(beganAt) }

func (o wireOwner) OnEvent(event int32, path string) { o.s.fireWatches(path, zk.EventType(event)) }

func (o wireOwner) OnLateProof(w wire.SentWrite) { o.s.recordLateProof(w) }

func (o wireOwner) OnFailure(err error, isHopeless bool) { o.s.onFailure(err, isHopeless) }
