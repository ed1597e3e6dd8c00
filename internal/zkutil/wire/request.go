package wire

import (
	"encoding/binary"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// Request is a request of the engine's own. Op decides which fields count.
type Request struct {
	Op      int32
	Path    string
	Data    []byte
	ACL     []zk.ACL
	Flags   int32
	Version int32          // −1: any
	IsWatch bool           // a read that also sets a watch
	Checks  []string       // paths to check in a Multi; Path, if set, is then written with Data at Version, or deleted
	Deletes bool           // a Multi deletes Path at Version
	Creates []Creation     // by a Multi, with ACL and Flags
	Removes []string       // paths of znodes that a Multi deletes at any version
	Kind    core.WatchKind // of the watch to remove with RemoveWatches

	To Receiver
}

// Creation is a znode that a Multi creates.
type Creation struct {
	Path string
	Data []byte
}

// Receiver gets the answer to a request, exactly once. Receive runs on the goroutine that reads or ends the
// connection, and so must not block, and must not wait for a request.
type Receiver interface {
	Receive(a Answer)
}

// Answer is the outcome of a request. The operation decides which fields are set.
type Answer struct {
	// Err is nil for a success. For a refusal by the server, Err is zk.Conn's error for the code. After
	// zk.ErrNoServer and zk.ErrShortBuffer the request was not sent. After any other error, such as
	// zk.ErrConnectionClosed, the server may have executed the request.
	Err      error
	SentAt   time.Time // shortly before sending
	Path     string    // of the created znode
	Data     []byte
	Stat     zk.Stat
	Children []string
	Zxid     int64    // of the latest transaction that the server had executed: for a write, that of the write
	Created  []string // paths of the znodes that a Multi has created
	Refused  int      // index of the part of a Multi that caused Err, −1 if unknown
	// IsUncommitted means that the server answered a write without a transaction, so that the answer proves nothing.
	IsUncommitted bool
	IsBehind      bool // the connection ended with an earlier request unanswered, which may be the reason
}

// firstXid is the highest xid of the engine's own requests: zk.Conn's xids are positive, and the protocol's
// special xids are above −1000. Servers treat all other xids alike (FinalRequestProcessor).
const firstXid = -1001

// isOwnXid reports whether xid belongs to a request of the engine's own.
func isOwnXid(xid int32) bool { return xid <= firstXid }

// nextXid returns the xid after xid for the engine's next request.
func nextXid(xid int32) int32 {
	if xid-1 > xid { // below the least number
		return firstXid
	}
	return xid - 1
}

// appendFrame appends the frame of a request.
func appendFrame(b []byte, xid int32, r *Request) []byte {
	start := len(b)
	e := proto.Extend(append(b, 0, 0, 0, 0))
	e.Int32(xid).Int32(r.Op)
	if r.Op == proto.OpMulti {
		appendParts(&e, r)
	} else {
		appendFields(&e, r)
	}
	b = e.Bytes()
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4)) //nolint:gosec // far below 1 GiB
	return b
}

func appendFields(e *proto.Encoder, r *Request) {
	e.String(r.Path)
	switch r.Op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer:
		e.Buffer(r.Data).ACL(r.ACL).Int32(r.Flags)
	case proto.OpDelete:
		e.Int32(r.Version)
	case proto.OpSetData:
		e.Buffer(r.Data).Int32(r.Version)
	case proto.OpGetData, proto.OpExists, proto.OpGetChildren2:
		e.Bool(r.IsWatch)
	case proto.OpRemoveWatches:
		e.Int32(r.Kind.Watchers())
	case proto.OpSync: // the path alone
	}
}
