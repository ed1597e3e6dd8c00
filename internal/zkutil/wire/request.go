package wire

import (
	"encoding/binary"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Request is one request of the engine's own. Which fields count depends on Op.
type Request struct {
	Op      int32
	Path    string
	Data    []byte
	ACL     []zk.ACL
	Flags   int32
	Version int32    // −1: any
	IsWatch bool     // a read that also sets a watch
	Checks  []string // paths that a Multi checks
	Reads   []string // paths whose children a MultiRead lists

	To Receiver
}

// Receiver gets the answer to a request, exactly once. Receive runs on the goroutine that reads the
// connection, or on the one that ends it: so it must not block, and must not wait for a request.
type Receiver interface {
	Receive(a Answer)
}

// Answer is what became of a request. Which fields are set depends on the operation.
type Answer struct {
	// Err is nil for a success. A refusal by the server is the error that zk.Conn has for its code.
	// After zk.ErrNoServer and zk.ErrShortBuffer the request was not sent. After any other error, such as
	// zk.ErrConnectionClosed, it may have been executed.
	Err      error
	SentAt   time.Time // shortly before it was sent
	Path     string    // of the znode that was created
	Data     []byte
	Stat     zk.Stat
	Children []string
	Reads    []error         // why each read of a MultiRead was refused; nil: it was not
	Refused  int             // index of the check that was the cause of Err, −1 if that is not known
	Events   <-chan zk.Event // of the watch, where zk.Conn has set it
}

// firstXid is the highest xid of our own requests: zk.Conn's are positive, and the special ones of the
// protocol are above −1000. Servers treat any other xid alike (FinalRequestProcessor).
const firstXid = -1001

// isOwnXid reports whether a request or an answer is one of the engine's own.
func isOwnXid(xid int32) bool { return xid <= firstXid }

// nextXid returns the xid after one of our own.
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
	switch r.Op {
	case proto.OpMulti:
		appendChecks(&e, r.Checks)
	case proto.OpMultiRead:
		appendReads(&e, r.Reads)
	default:
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
	case proto.OpSync: // the path alone
	}
}
