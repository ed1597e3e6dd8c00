package zktest

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Op is the operation that a request asks for.
type Op int32

// The operations that the server knows. Where an operation selects requests, OpAny
// selects all but pings and handshakes.
const (
	OpAny             Op = 0
	OpConnect         Op = proto.OpCreateSession // the handshake of a new or existing session
	OpClose           Op = proto.OpCloseSession
	OpCreate          Op = proto.OpCreate
	OpCreate2         Op = proto.OpCreate2
	OpCreateContainer Op = proto.OpCreateContainer
	OpCreateTTL       Op = proto.OpCreateTTL
	OpDelete          Op = proto.OpDelete
	OpExists          Op = proto.OpExists
	OpGetData         Op = proto.OpGetData
	OpSetData         Op = proto.OpSetData
	OpGetACL          Op = proto.OpGetACL
	OpSetACL          Op = proto.OpSetACL
	OpGetChildren     Op = proto.OpGetChildren
	OpGetChildren2    Op = proto.OpGetChildren2
	OpSync            Op = proto.OpSync
	OpMulti           Op = proto.OpMulti
	OpMultiRead       Op = proto.OpMultiRead
	OpPing            Op = proto.OpPing
	OpAuth            Op = proto.OpAuth
	OpSASL            Op = proto.OpSASL // a message of a login
	OpSetWatches      Op = proto.OpSetWatches
	OpSetWatches2     Op = proto.OpSetWatches2
	OpAddWatch        Op = proto.OpAddWatch
	OpCheckWatches    Op = proto.OpCheckWatches
	OpRemoveWatches   Op = proto.OpRemoveWatches
	OpWhoAmI          Op = proto.OpWhoAmI
)

// String returns the operation's name in ZooKeeper's documentation.
func (op Op) String() string {
	if op == OpAny {
		return "any"
	}
	return proto.OpName(int32(op))
}

// isWrite reports whether the quorum has to commit the operation.
func (op Op) isWrite() bool {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpSetData, OpSetACL, OpMulti, OpClose, proto.OpCheck:
		return true
	default:
		return false
	}
}

func (op Op) isRead() bool {
	switch op {
	case OpExists, OpGetData, OpGetACL, OpGetChildren, OpGetChildren2, OpMultiRead, OpSync, OpSetWatches,
		OpSetWatches2, OpAddWatch, OpCheckWatches, OpRemoveWatches, OpWhoAmI:
		return true
	default:
		return false
	}
}

// check panics unless op is an operation that a client can send, or OpAny, because a test must not pass when its fault
// has no target.
func (op Op) check() {
	switch op {
	case OpAny, OpConnect, OpPing, OpAuth, proto.OpReconfig:
		return
	}
	if !op.isWrite() && !op.isRead() {
		panic(fmt.Sprintf("zktest: no client sends the operation %d", int32(op)))
	}
}

// matches reports whether op selects the request.
func (op Op) matches(r Request) bool {
	return op == r.Op || op == OpAny && r.Op != OpPing && r.Op != OpConnect
}
