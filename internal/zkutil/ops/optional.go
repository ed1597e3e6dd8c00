package ops

import (
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Servers before 3.5 lack create2, removeWatches and createContainer. ZooKeeper answers a request for an operation that it does not
// know with Unimplemented, and ends the connection. Others answer BadArguments, or end the connection without a word. So
// the session uses another operation instead, and remembers for each server what the server lacks until the session is closed. A lost
// answer is an ordinary loss while the server is known to execute the operation, or to refuse it for another reason. Otherwise enoughLost
// lost answers in a row say that the server hangs up. If that is wrong, the other operation serves as well.
//
// A server that resumes no session is not asked for these operations at all, because a hang-up would cost the session (see
// wire.Wire.IsBound).

// enoughLost is how many lost answers in a row say that a server does not know an operation. enoughLostThoughKnown counts for an operation
// that the server knew before, because another server may have the address now.
const (
	enoughLost            = 2
	enoughLostThoughKnown = 5
)

// maxServersKnown bounds the map of servers, which is cleared when full.
const maxServersKnown = 64

// optional are the operations that servers may lack.
var optional = []int32{proto.OpCreate2, proto.OpRemoveWatches, proto.OpCreateContainer} //nolint:gochecknoglobals // a constant list

// IsOptional reports whether a session can do without an operation.
func IsOptional(op int32) bool {
	return op == proto.OpCreate2 || op == proto.OpRemoveWatches || op == proto.OpCreateContainer
}

// StandIn returns the operation to use instead of an operation that the server lacks. The result is op itself if there is none.
func StandIn(op int32) int32 {
	if op == proto.OpCreate2 || op == proto.OpCreateContainer {
		return proto.OpCreate
	}
	return op
}

// IsAnswered reports whether a server executed or refused a request.
func IsAnswered(err error) bool { return err == nil || zkutil.IsRefused(err) }

// Optional is what a session knows of the operations that servers may lack.
type Optional struct {
	mu      sync.Mutex // protects the fields below
	server  string     // of the latest connection
	isBound bool       // the server resumes no session
	known   map[serverOp]*Knowledge
}

// serverOp is an operation of a server.
type serverOp struct {
	server string
	op     int32
}

// Knowledge is what is known of one operation of a server.
type Knowledge struct {
	IsKnown   bool // the server executed it, or refused it for another reason
	IsLacking bool // the server is not asked for it any more

	server string
	lost   int // answers in a row
}

// NewOptional returns an Optional that knows nothing.
func NewOptional() *Optional { return &Optional{known: map[serverOp]*Knowledge{}} }

// SetServer records the server of a new connection. isBound means that the server resumes no session.
func (o *Optional) SetServer(server string, isBound bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server, o.isBound = server, isBound; len(o.known) >= maxServersKnown*len(optional) {
		clear(o.known)
	}
}

// ofLocked returns what is known of an operation of a server, to be changed.
func (o *Optional) ofLocked(server string, op int32) *Knowledge {
	key := serverOp{server, op}
	if o.known[key] == nil {
		o.known[key] = &Knowledge{server: server}
	}
	return o.known[key]
}

// Of returns what is known of an operation of the present server.
func (o *Optional) Of(op int32) Knowledge {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isBound {
		return Knowledge{server: o.server, IsLacking: true}
	}
	return *o.ofLocked(o.server, op)
}

// OfServer returns what is known of an operation of a server.
func (o *Optional) OfServer(server string, op int32) Knowledge {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *o.ofLocked(server, op)
}

// NoteKnown records that a server knows an operation.
func (o *Optional) NoteKnown(op int32, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.ofLocked(server, op)
	state.IsKnown, state.lost = true, 0
}

// NoteLacking records that the server of before lacks an operation.
func (o *Optional) NoteLacking(op int32, before Knowledge) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ofLocked(before.server, op).IsLacking = true
}

// NoteOutcome records what an answer says about an operation. before is the knowledge when the request was sent.
// BadArguments may refer to the operation or to the arguments.
func (o *Optional) NoteOutcome(op int32, before Knowledge, err error) {
	switch {
	case zkutil.IsUnimplemented(err):
		o.noteUnimplemented(op, before.server)
	case errors.Is(err, zk.ErrBadArguments):
	case errors.Is(err, zk.ErrConnectionClosed):
		o.noteLost(op, before)
	case IsAnswered(err):
		o.NoteKnown(op, before.server)
	}
}

// noteUnimplemented records that a server says that it does not know an operation. It does not know later operations either,
// unless it was seen to.
func (o *Optional) noteUnimplemented(op int32, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range optional {
		state := o.ofLocked(server, other)
		state.IsLacking = state.IsLacking || other == op || other > op && !state.IsKnown
	}
}

// noteLost records that the connection ended before the answer. before is the knowledge when the request was sent, so
// that several losses of one connection count once.
func (o *Optional) noteLost(op int32, before Knowledge) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.ofLocked(before.server, op)
	if state.lost != before.lost {
		return
	}
	enough := enoughLost
	if state.IsKnown {
		enough = enoughLostThoughKnown
	}
	state.lost++
	state.IsLacking = state.IsLacking || state.lost >= enough
}
