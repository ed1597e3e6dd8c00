package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// No client can do without some operations: create, say. A server that does not know one ends the connection at each such request,
// with the answer Unimplemented or without any. A client that repeated the request would connect and be disconnected forever. So the
// caller gets ErrUnsupported, and for a minute no such request is sent.
//
// A hang-up without an answer looks like a crash of the server. It is blamed on the request only if no server has answered
// such a request yet, and enoughHangUps connections of one session in a row have ended right after one: a hang-up does not end the
// session, unless no session outlives its connection. Of several unanswered requests on a connection, the earliest is blamed, because
// servers execute requests in order. A slow or lost connection does not count. A server without a quorum ends connections before the
// handshake, so that an outage is no such hang-up.

const (
	enoughHangUps    = 8
	hangUpsWithin    = time.Second // between a request and its hang-up
	unsupportedPause = time.Minute // until another request is sent
)

// hangUps is what a session knows of operations at which servers end the connection.
type hangUps struct {
	hasFailure atomic.Bool // of any operation

	mu  sync.Mutex // protects ops
	ops map[int32]*supportedOp
}

// supportedOp is what is known of one operation.
type supportedOp struct {
	isKnown bool      // a server has answered it
	inARow  int       // connections that have ended at it
	epoch   uint64    // the latest of these
	session int64     // theirs
	failure error     // ErrUnsupported; nil: it is supported as far as is known
	nextAt  time.Time // when to send another request after that
}

func newHangUps() hangUps { return hangUps{ops: map[int32]*supportedOp{}} }

func (h *hangUps) ofLocked(op int32) *supportedOp {
	if h.ops[op] == nil {
		h.ops[op] = &supportedOp{}
	}
	return h.ops[op]
}

// refuse returns ErrUnsupported if one of some requests is not to be sent now.
func (h *hangUps) refuse(ops ...int32) error {
	if !h.hasFailure.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, op := range ops {
		state := h.ofLocked(op)
		switch {
		case state.failure == nil:
		case now.Before(state.nextAt):
			return state.failure
		default:
			state.nextAt = now.Add(unsupportedPause)
		}
	}
	return nil
}

// judge returns the error of an answer that came at now. The error matches ErrUnsupported if the servers seem not to know the operation.
func (h *hangUps) judge(c *call, a wire.Answer, now time.Time) error {
	if slices.Contains(optional, c.Op) {
		return a.Err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := h.ofLocked(c.Op)
	switch {
	case zkutil.IsUnimplemented(a.Err):
		return h.failLocked(state, fmt.Errorf("%w: %s: %w", zkutil.ErrUnsupported, proto.OpName(c.Op), a.Err))
	case isAnswered(a.Err):
		*state = supportedOp{isKnown: true}
	case errors.Is(a.Err, zk.ErrConnectionClosed) && now.Sub(a.SentAt) <= hangUpsWithin && !state.isKnown && !a.IsBehind:
		if state.session != c.ticket.id && !c.isBound() {
			state.inARow = 0
		}
		if state.epoch != c.ticket.epoch {
			state.inARow++
		}
		state.epoch, state.session = c.ticket.epoch, c.ticket.id
		if state.inARow >= enoughHangUps {
			return h.failLocked(state, fmt.Errorf("%w: %s: %d connections in a row have ended at it: %w",
				zkutil.ErrUnsupported, proto.OpName(c.Op), enoughHangUps, a.Err))
		}
	}
	return a.Err
}

func (h *hangUps) failLocked(state *supportedOp, failure error) error {
	state.failure, state.nextAt = failure, time.Now().Add(unsupportedPause)
	h.hasFailure.Store(true)
	return failure
}

// isBound reports whether the session of the request ends with its connection.
func (c *call) isBound() bool { return c.s.wire != nil && c.s.wire.IsBound() }
