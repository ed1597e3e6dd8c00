package proto

import "strconv"

// Operation codes of request headers.
const (
	OpCreate          = 1
	OpDelete          = 2
	OpExists          = 3
	OpGetData         = 4
	OpSetData         = 5
	OpGetACL          = 6
	OpSetACL          = 7
	OpGetChildren     = 8
	OpSync            = 9
	OpPing            = 11
	OpGetChildren2    = 12
	OpCheck           = 13
	OpMulti           = 14
	OpCreate2         = 15
	OpReconfig        = 16
	OpCheckWatches    = 17
	OpRemoveWatches   = 18
	OpCreateContainer = 19
	OpCreateTTL       = 21
	OpMultiRead       = 22 // reads in one request; from 3.6
	OpAuth            = 100
	OpSetWatches      = 101
	OpSASL            = 102
	OpSetWatches2     = 105 // with persistent watches
	OpAddWatch        = 106
	OpWhoAmI          = 107 // from 3.7
	OpCreateSession   = -10 // the handshake, which has no header
	OpCloseSession    = -11
	OpError           = -1 // a refused part of a Multi, and the end mark of the answer
)

// OpName returns the name of an operation, "op 42" where the code means nothing.
func OpName(op int32) string {
	switch op {
	case OpCreate:
		return "create"
	case OpDelete:
		return "delete"
	case OpExists:
		return "exists"
	case OpGetData:
		return "getData"
	case OpSetData:
		return "setData"
	case OpGetACL:
		return "getACL"
	case OpSetACL:
		return "setACL"
	case OpGetChildren:
		return "getChildren"
	case OpSync:
		return "sync"
	case OpPing:
		return "ping"
	case OpGetChildren2:
		return "getChildren2"
	case OpCheck:
		return "check"
	case OpMulti:
		return "multi"
	case OpCreate2:
		return "create2"
	case OpReconfig:
		return "reconfig"
	case OpCheckWatches:
		return "checkWatches"
	case OpRemoveWatches:
		return "removeWatches"
	case OpCreateContainer:
		return "createContainer"
	case OpCreateTTL:
		return "createTTL"
	case OpMultiRead:
		return "multiRead"
	case OpAuth:
		return "auth"
	case OpSetWatches:
		return "setWatches"
	case OpSASL:
		return "sasl"
	case OpSetWatches2:
		return "setWatches2"
	case OpAddWatch:
		return "addWatch"
	case OpWhoAmI:
		return "whoAmI"
	case OpCreateSession:
		return "connect"
	case OpCloseSession:
		return "close"
	default:
		return "op " + strconv.Itoa(int(op))
	}
}

// Transaction ids of frames that answer no request.
const (
	XidEvent      = -1
	XidPing       = -2
	XidAuth       = -4
	XidSetWatches = -8
)

// Error codes of reply headers.
const (
	CodeOK                      = 0
	CodeRuntimeInconsistency    = -2
	CodeMarshallingError        = -5
	CodeUnimplemented           = -6
	CodeOperationTimeout        = -7
	CodeBadArguments            = -8
	CodeAPIError                = -100
	CodeNoNode                  = -101
	CodeNoAuth                  = -102
	CodeBadVersion              = -103
	CodeNoChildrenForEphemerals = -108
	CodeNodeExists              = -110
	CodeNotEmpty                = -111
	CodeSessionExpired          = -112
	CodeInvalidACL              = -114
	CodeAuthFailed              = -115
	CodeClosing                 = -116
	CodeNothing                 = -117
	CodeSessionMoved            = -118
	CodeNoWatcher               = -121
	CodeReconfigDisabled        = -123
	CodeLoginRequired           = -124 // SessionClosedRequireSaslAuth
)

// Types of watch events.
const (
	EventCreated         = 1
	EventDeleted         = 2
	EventDataChanged     = 3
	EventChildrenChanged = 4
)

// Kinds of watches in removeWatches and checkWatches.
const (
	WatchersOfChildren = 1
	WatchersOfData     = 2
	WatchersOfAny      = 3
)

// Modes of addWatch.
const (
	WatchPersistent = 0
	WatchRecursive  = 1
)

// Flags of a create request.
const (
	FlagEphemeral           = 1
	FlagSequential          = 2
	FlagContainer           = 4
	FlagTTL                 = 5
	FlagTTLSequential       = 6
	MaxFlag                 = FlagTTLSequential
	PasswordLength          = 16
	MaxFrame                = 1<<20 - 1 // a server's default limit on a frame (jute.maxbuffer)
	ContainerOwner    int64 = -1 << 63  // ephemeralOwner of a container
	TTLOwner          int64 = -1 << 56  // plus the TTL in milliseconds: ephemeralOwner of a znode with a TTL
)
