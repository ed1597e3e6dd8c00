package ops

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// No client can do without some operations: create, say. A server that does not know one ends the connection at each such request,
// with the answer Unimplemented or without any. A caller whose context has no end would otherwise wait forever and never learn why. So
// the caller gets ErrUnsupported.
//
// A connection that ends without an answer is a hint at most, because a crash, a restart or a proxy that cuts connections look the same.
// The request is blamed only if all of this is true:
//
//   - No server ever answered such a request.
//   - enoughEnds connections of one session in a row ended right after such a request, over a session timeout at least. The end of a
//     connection does not end the session, unless no session outlives its connection.
//   - Each of these connections answered another request right before, which the caller sends to test it.
//
// The blame is still a guess. So for unsupportedPause no such request is sent, and then the next call asks again. Elections and clean-ups
// continue (see election.Candidate and session.RepeatCleanUp).
//
// Of several unanswered requests on a connection, the earliest is blamed, because servers execute requests in order. A slow or lost
// connection does not count.

const (
	enoughEnds = 8
	endsWithin = time.Second // between a request and the end of the connection

	// unsupportedPause is the time until the next request for an operation that the servers seem to lack, because each such request costs
	// the session its connection. It is short, because the lack may be no more than a guess.
	unsupportedPause = 5 * time.Second
)

// Suspects records at which operations connections ended.
type Suspects struct {
	hasAny atomic.Bool // there may be a suspect

	mu  sync.Mutex // protects the field below
	ops map[int32]*suspect
}

// suspect is an operation, with the connections that ended at it in a row.
type suspect struct {
	isKnown bool      // a server answered the operation
	epoch   uint64    // of the latest connection that ended at it
	session int64     // of that connection
	at      time.Time // when that connection ended; zero if no connection did

	tested int       // connections that ended at it right after they answered another request
	since  time.Time // when the first of these ended

	failure error     // ErrUnsupported; nil if the operation is supported as far as is known
	nextAt  time.Time // when to send another request after that
}

// NewSuspects returns a Suspects that knows nothing.
func NewSuspects() *Suspects { return &Suspects{ops: map[int32]*suspect{}} }

func (h *Suspects) ofLocked(op int32) *suspect {
	if h.ops[op] == nil {
		h.ops[op] = &suspect{}
	}
	return h.ops[op]
}

// Check returns ErrUnsupported if no request for an operation is to be sent now. isSuspect reports whether a connection ended at such a
// request, and no server ever answered one. Then the caller tests the connection first.
func (h *Suspects) Check(op int32) (isSuspect bool, err error) {
	if !h.hasAny.Load() {
		return false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := h.ofLocked(op)
	if state.failure != nil && time.Now().Before(state.nextAt) {
		return true, state.failure
	}
	return !state.at.IsZero(), nil
}

// failLocked records that the servers seem to lack an operation.
func (s *suspect) failLocked(failure error) error {
	s.failure, s.nextAt = failure, time.Now().Add(unsupportedPause)
	return failure
}

// TestOp returns the harmless read that tests a connection. No connection is known to have ended at it.
func (h *Suspects) TestOp() int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range []int32{proto.OpExists, proto.OpGetData} {
		if state := h.ofLocked(op); state.at.IsZero() && state.failure == nil {
			return op
		}
	}
	return proto.OpGetChildren2
}

// IsEndAt reports whether err is the end of a connection soon after a request was sent. The caller knows whether the request was the
// earliest one without an answer.
func IsEndAt(err error, sinceSent time.Duration) bool {
	return errors.Is(err, zk.ErrConnectionClosed) && sinceSent <= endsWithin
}

// Outcome is the outcome of a request.
type Outcome struct {
	Err    error // of the answer
	IsEnd  bool  // the connection ended at the request (see IsEndAt)
	At     time.Time
	Within time.Duration // the session timeout, if IsEnd

	Epoch    uint64 // of the connection
	IsTested bool   // the connection answered another request right before
	Session  int64
	IsBound  bool // the session ends with the connection
}

// Judge records the outcome of a request, and returns the error for the caller. The error matches ErrUnsupported if the servers seem not
// to know the operation.
func (h *Suspects) Judge(op int32, o Outcome) error {
	if IsOptional(op) {
		return o.Err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := h.ofLocked(op)
	switch {
	case zkutil.IsUnimplemented(o.Err):
		h.hasAny.Store(true)
		return state.failLocked(fmt.Errorf("%w: %s: %w", zkutil.ErrUnsupported, proto.OpName(op), o.Err))
	case IsAnswered(o.Err):
		*state = suspect{isKnown: true}
	case o.IsEnd && !state.isKnown:
		h.hasAny.Store(true)
		if state.recordLocked(o); state.tested >= enoughEnds && o.At.Sub(state.since) >= o.Within {
			return state.failLocked(fmt.Errorf("%w: %s: %d connections in a row ended at it: %w",
				zkutil.ErrUnsupported, proto.OpName(op), enoughEnds, o.Err))
		}
	}
	return o.Err
}

// recordLocked records that a connection ended at a request. Ends far apart, or of different sessions, are no row.
func (s *suspect) recordLocked(o Outcome) {
	if o.At.Sub(s.at) > o.Within || s.session != o.Session && !o.IsBound {
		*s = suspect{}
	}
	if o.IsTested && s.epoch != o.Epoch {
		if s.tested++; s.tested == 1 {
			s.since = o.At
		}
	}
	s.at, s.epoch, s.session = o.At, o.Epoch, o.Session
}
