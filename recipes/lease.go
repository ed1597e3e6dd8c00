package recipes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/bridge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func init() {
	bridge.Register(bridge.Parts[*Client, *Lease]{
		Attach:       (*Client).attach,
		NewLease:     func(entry *session.Entry) *Lease { return &Lease{entry: entry} },
		BeginRelease: (*Lease).beginRelease,
	})
}

// Lease is one acquisition of a lock, of a permit, or of a term of leadership. It is valid until its
// context ends. Its methods may be called concurrently.
type Lease struct {
	entry *session.Entry
}

// Context ends with the lease, before the server can grant the lock to another contender.
// context.Cause returns the reason: ErrReleased, ErrSessionLost, ErrSuspended, ErrNodeDeleted or
// ErrClosed. The context has the values of the context of the acquisition, but neither its deadline
// nor its cancellation. Under a selector's Run, the context of a term has the values of Run's context,
// and ends with the cause of that context when that ends.
//
// The context also carries ownership: acquiring the same lock with it, or with a context derived
// from it, re-enters. All code that gets the context shares the lease.
func (l *Lease) Context() context.Context { return l.entry.Context() }

// FencingToken returns a number that is larger for each later exclusive holder of the path, in the
// whole ensemble, and constant for the life of the lease. It is the czxid of the lease's znode. Two
// terms of one latch with only a suspension between them share a znode, and so a token. So do leases of
// a cohort that follow each other by Release: see mutex.WithCohort.
//
// A resource that remembers the highest token and refuses lower ones is safe from a holder that was
// paused and does not know that it has lost the lease. With read-modify-write in SQL, claim the row
// before reading it, because a check only at the write lets two holders read the same value:
//
//	UPDATE stock SET token = :token WHERE id = :id AND token <= :token  -- claim
//	SELECT amount FROM stock WHERE id = :id                             -- read
//	UPDATE stock SET amount = :new WHERE id = :id AND token = :token    -- write
//
// Each UPDATE must affect one row. If it affects none, a later holder has claimed the row.
func (l *Lease) FencingToken() int64 { return l.entry.Token() }

// Path returns the path of the lease's znode on the server, namespace included.
func (l *Lease) Path() string { return l.entry.Path() }

// TrustedUntil returns the time until which the lease is certainly valid. It moves forward as long as
// the session is proven alive. Right before each step that can't be fenced, call it again and compare
// the result with time.Now. For a lease that has ended it is not after the end.
//
// After a pause of the process it is right even before the context has ended. After a suspension of
// the machine it is right on Linux only, because other systems do not show how long that was. It is
// zero on an adopted connection whose session timeout is unknown.
func (l *Lease) TrustedUntil() time.Time { return l.entry.TrustedUntil() }

// Revoked returns a channel that is closed when a peer has asked for the lease. The lease is still
// held: finish or undo the work, and call Release. A request that came while the lease was still
// awaited counts as well. The end of the lease does not close it: wait for the end of Context as well.
func (l *Lease) Revoked() <-chan struct{} { return l.entry.Revoked() }

// Check returns a guard for a transaction with zk.Conn.Multi. The transaction is executed only if the
// lease's znode exists. After release or loss it fails with zk.ErrNoNode and changes nothing. In a cohort
// the znode stays when the lease is passed on: see mutex.WithCohort.
func (l *Lease) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: l.entry.Path(), Version: -1}
}

// Release gives the lease back. Call it once per Acquire, typically with defer. The last Release of a
// re-entered lock deletes the znode. Release returns
//
//   - nil when the znode is gone, or when another lease on the same hold remains, or when a cohort
//     keeps the znode;
//   - the cause if the lease was lost: then there is nothing to release;
//   - ErrNotHeld when called again;
//   - ErrNodeNotDeleted if the znode could not be deleted within the operation timeout. The deletion
//     is repeated in the background until it is confirmed or the session is over;
//   - ErrClosed if the client is closed meanwhile: the server deletes the znode with the session.
//
// The context has ended when Release returns, also after an error.
//
// For a term of leadership Release only asks for the step-down, and returns at once: the context
// ends, the leader's function or the listeners return, and then the znode is deleted. A latch then
// joins again at the tail, after a pause if the term was short. A selector does what it does after
// any term.
func (l *Lease) Release() error { return l.releaseError(l.entry.Leave()) }

// beginRelease is for bridge.Parts.
func (l *Lease) beginRelease() (await func(stop <-chan struct{}) error) {
	leaving := l.entry.BeginLeave()
	return func(stop <-chan struct{}) error { return l.releaseError(leaving.Await(stop)) }
}

func (l *Lease) releaseError(err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: "lease: release", Path: l.entry.Path(), Err: err}
}

// String returns "mutex /locks/a, token 4294967310".
func (l *Lease) String() string {
	if l == nil {
		return "lease(nil)"
	}
	return l.entry.Recipe() + " " + l.entry.UserPath() + ", token " + strconv.FormatInt(l.FencingToken(), 10)
}

// Format writes String for every verb. Without it package fmt would read what other goroutines write, and print
// secrets of the client.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, l.String()) }

// LogValue returns a group with the recipe, path, znode, token and id.
func (l *Lease) LogValue() slog.Value {
	if l == nil {
		return slog.StringValue(l.String())
	}
	return slog.GroupValue(
		slog.String("recipe", l.entry.Recipe()), slog.String("path", l.entry.UserPath()), slog.String("znode", l.Path()),
		slog.Int64("token", l.FencingToken()), slog.String("id", l.entry.ID()))
}

// Participant is one contender of a recipe. If its znode may not be read, because of the ACL, only the
// Path is set, and Token and Since if the server shows them all the same.
type Participant struct {
	// ID is the content of its znode: the id of its recipe's WithID, or that of the client's.
	ID string
	// Path is the path of its znode on the server, namespace included.
	Path string
	// Leader is true for the first contender of the queue: no other one can hold the lock or lead.
	// With a read-write lock or a semaphore it is true for all those who may hold it together.
	// Such a contender itself need not hold it. The znode of a killed process stays until its session
	// has expired, and the znode of a leader that steps down until its work has returned.
	Leader bool
	// Token is the fencing token that the contender has, or will have, as holder or leader.
	Token int64
	// Since is the time at which its znode was created, by the servers' clock: the start of its
	// wait. It is not the start of the hold or the term.
	Since time.Time
	// Revoked is true if a peer has asked for the lease. The request replaces the ID, which is
	// empty then.
	Revoked bool
}
