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
		Entry:        func(l *Lease) *session.Entry { return l.entry },
		BeginRelease: (*Lease).beginRelease,
		EndWork:      (*Lease).endWork,
	})
}

// Lease is one acquisition of a lock, of a permit, or of a term of leadership. A lease is valid until its
// context ends. The methods may be called concurrently.
type Lease struct {
	entry *session.Entry
}

// Context ends with the lease, before the server can grant the lock to another contender. context.Cause returns
// the reason: ErrReleased, ErrSessionLost, ErrSuspended, ErrNodeDeleted, ErrClosed or ErrMaxHold. The context has the
// values of the context of the acquisition, but neither its deadline nor its cancellation. Under a selector's
// Run, the context of a term has the values of Run's context, and ends with the same cause when Run's context
// ends.
//
// The context also carries ownership: Acquire of the same lock with this context, or with a derived context,
// re-enters. All code that gets the context shares the lease.
func (l *Lease) Context() context.Context { return l.entry.Context() }

// FencingToken returns a number that is larger for each later exclusive holder of the path, in the whole
// ensemble, and constant for the life of the lease. The token is the czxid of the lease's znode. A read lock
// acquired under the write lock has the token of the write lock, not the czxid of its own znode. Two terms of
// the same latch separated by only a suspension share a znode, and so a token. So do leases of a cohort that
// follow each other by Release: see mutex.WithCohort.
//
// A resource that remembers the highest token and refuses lower tokens is safe from a holder that was paused
// and does not know about the loss of the lease. With read-modify-write in SQL, claim the row before reading
// it, because a check only at the write lets two holders read the same value:
//
//	UPDATE stock SET token = :token WHERE id = :id AND token <= :token  -- claim
//	SELECT amount FROM stock WHERE id = :id                             -- read
//	UPDATE stock SET amount = :new WHERE id = :id AND token = :token    -- write
//
// Each UPDATE must affect exactly one row. If no row is affected, a later holder has claimed the row.
//
// Tokens grow as long as the ensemble keeps its history. If the servers are emptied, or restored from a backup,
// tokens begin again at the restored point, and a resource that has seen larger tokens refuses every holder.
// Reset the stored tokens before work resumes, once nobody can still write with an earlier token:
//
//	UPDATE stock SET token = 0
func (l *Lease) FencingToken() int64 { return l.entry.Token() }

// Path returns the path of the lease's znode on the server, namespace included.
func (l *Lease) Path() string { return l.entry.Path() }

// TrustedUntil returns the time until which the lease is certainly valid. The time moves forward as long as the
// session is proven alive. Right before each step that can't be fenced, call TrustedUntil again and compare the
// result with time.Now. For a lease that has ended, the result is not after the end.
//
// After a pause of the process the result is right even before the context has ended. After a suspension of the
// machine the result is right on Linux only, because other systems do not expose the length of the suspension.
// The result is zero on an adopted connection whose session timeout is unknown.
func (l *Lease) TrustedUntil() time.Time { return l.entry.TrustedUntil() }

// Revoked returns a channel that is closed when a peer has asked for the lease. The lease is still held: finish
// or undo the work, and call Release. A request that came during the wait for the lease counts as well. The end
// of the lease does not close the channel: also wait for the end of Context.
func (l *Lease) Revoked() <-chan struct{} { return l.entry.Revoked() }

// Check returns a guard for a transaction with zk.Conn.Multi. The transaction is executed only if the lease's
// znode exists. After release or loss the transaction fails with zk.ErrNoNode and changes nothing. In a cohort
// the znode stays when the lease is passed on: see mutex.WithCohort.
func (l *Lease) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: l.entry.Path(), Version: -1}
}

// Release gives the lease back. Call Release once per Acquire, typically with defer. The last Release of a
// re-entered lock deletes the znode. Release returns
//
//   - nil when the znode is gone, or when another lease on the same hold remains, or when a cohort
//     keeps the znode;
//   - the cause if the lease was lost: then nothing is left to release;
//   - ErrMaxHold, once the znode is gone, if the lease has ended at its bound: see WithMaxHold of the recipes;
//   - ErrNotHeld when called again;
//   - ErrNodeNotDeleted if the znode could not be deleted within the operation timeout. The deletion is
//     repeated in the background until the deletion is confirmed or the session is over. All unanswered
//     releases of a client share a single operation timeout, which counts from the first release: so later
//     releases return sooner;
//   - ErrClosed if the client is closed meanwhile: the server deletes the znode together with the session.
//
// The context has ended when Release returns, also after an error.
//
// For a term of leadership Release only asks for the step-down, and returns at once: the context ends, the
// leader's function or the listeners return, and then the znode is deleted. A latch then joins again at the
// tail, after a pause if the term was short. A selector goes on as after any other term.
func (l *Lease) Release() error { return l.releaseError(l.entry.Leave()) }

// beginRelease starts a Release, for bridge.Parts.
func (l *Lease) beginRelease() (await func(stop <-chan struct{}) error) {
	leaving := l.entry.BeginLeave()
	return func(stop <-chan struct{}) error { return l.releaseError(leaving.Await(stop)) }
}

// endWork starts a release whose await waits for the end of the work, for bridge.Parts.
func (l *Lease) endWork() (await func(stop <-chan struct{}) error) {
	leaving := l.entry.BeginLeave()
	return func(stop <-chan struct{}) error { return l.releaseError(leaving.AwaitAfterWork(stop)) }
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

// Format writes String for every verb. Without Format, package fmt would read fields while other goroutines
// write, and print secrets of the client.
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

// Participant is a contender of a recipe. If the ACL forbids reading the znode, only the Path is set, and Token
// and Since if the server shows both all the same.
type Participant struct {
	// ID is the content of the znode: the id set by WithID of the recipe, or else by WithID of the client.
	ID string
	// Path is the path of the znode on the server, namespace included.
	Path string
	// Leader is true for the first contender of the queue: no other contender can hold the lock or lead. With
	// a read-write lock or a semaphore, Leader is true for all contenders who may hold the lock together. Such
	// a contender need not hold the lock: the znode of a killed process stays until its session has expired,
	// and the znode of a leader that steps down until its work has returned.
	Leader bool
	// Token is the fencing token of the contender, now or later, as holder or leader.
	Token int64
	// Since is the time at which the znode was created, by the servers' clock: the start of the wait, not the
	// start of the hold or the term.
	Since time.Time
	// Priority is the priority of a candidate in an election: see WithPriority of latch and selector. A contender without a
	// priority has 0.
	Priority int
	// Revoked is true if a peer has asked for the lease. The request overwrites the ID, which is then empty.
	Revoked bool
	// NotEphemeral is true if the znode is not ephemeral, and so stays until somebody deletes it: a directory
	// or a leftover with the name of a contender. No recipe makes such a znode, and all recipes wait for its
	// deletion, as Curator does. Nobody can hold the lock or lead behind such a znode.
	NotEphemeral bool
}
