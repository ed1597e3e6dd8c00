package zktest

import "github.com/zkrecipes/zkrecipes/internal/proto"

// Op is what a request asks for.
type Op int32

// The operations that the server knows. OpAny stands for all but pings and handshakes,
// wherever an operation chooses requests.
const (
	OpAny             Op = 0
	OpConnect         Op = proto.OpCreateSession // the handshake of a new or a known session
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
	OpSetWatches      Op = proto.OpSetWatches
	OpSetWatches2     Op = proto.OpSetWatches2
	OpAddWatch        Op = proto.OpAddWatch
	OpCheckWatches    Op = proto.OpCheckWatches
	OpRemoveWatches   Op = proto.OpRemoveWatches
)

// String is the operation's name in ZooKeeper's documentation.
func (op Op) String() string {
	if op == OpAny {
		return "any"
	}
	return proto.OpName(int32(op))
}

// isWrite: the quorum has to commit it.
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
		OpSetWatches2, OpAddWatch, OpCheckWatches, OpRemoveWatches:
		return true
	default:
		return false
	}
}

// matches tells whether a request is one of those that op chooses.
func (op Op) matches(r Request) bool {
	return op == r.Op || op == OpAny && r.Op != OpPing && r.Op != OpConnect
}
