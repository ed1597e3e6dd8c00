package recipes

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/bridge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func init() {
	bridge.Register(bridge.Parts[*Client, *Lease]{
		Attach:       (*Client).attach,
		NewLease:     func(entry *session.Entry) *Lease { return &Lease{entry: entry} },
		Entry:        func(l *Lease) *session.Entry { return l.entry },
		ReleaseError: (*Lease).releaseError,
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
func (l *Lease) Context() context.Context { return l.own("context").Context() }

// WithoutHold returns a context that is ctx, but carries no hold: with it, Acquire of a lock that ctx holds queues like
// every other contender. Use it for background work that a lock's owner starts. With the owner's context, such work
// would re-enter the owner's lock, and would keep the lock after the owner's Do returns.
//
//	err := m.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
//		go reindex(recipes.WithoutHold(context.WithoutCancel(ctx))) // queues for m, and continues after Do
//		…
//	})
//
// The new context has the other values of ctx, and its deadline and end. The context of Do ends when Do returns, so work
// that outlives the lock needs [context.WithoutCancel] as well. An owner that waits for work which waits for the same lock
// waits for itself.
func WithoutHold(ctx context.Context) context.Context { return session.WithoutHolds(ctx) }

// FencingToken returns a number that is larger for each later exclusive holder of the path, in the whole ensemble, and
// constant for the life of the lease. The token is the czxid of the lease's znode. A read lock acquired under the write
// lock has the token of the write lock, not the czxid of its own znode. Two terms of the same latch separated by only a
// suspension share a znode, and so a token. So do leases of a cohort that follow each other by Release (see
// mutex.WithCohort). Permits created by one transaction, and parts of a multilock, have equal tokens.
//
// A resource that remembers the highest token and refuses lower tokens is safe from a holder that was paused
// and does not know about the loss of the lease. With read-modify-write in SQL, claim the row before reading
// it, because a check only at the write lets two holders read the same value:
//
//	UPDATE stock SET token = :token WHERE id = :id AND token <= :token  -- claim
//	SELECT amount FROM stock WHERE id = :id                             -- read
//	UPDATE stock SET amount = :new WHERE id = :id AND token = :token    -- write
//
// Each UPDATE must affect exactly one row. If no row is affected, a later holder claimed the row.
//
// Tokens grow as long as the ensemble keeps its history. If the servers are emptied, or restored from a backup,
// tokens restart at the restored point, and a resource that saw larger tokens refuses every holder. Reset the stored
// tokens before work resumes, once no process can still write with an earlier token:
//
//	UPDATE stock SET token = 0
func (l *Lease) FencingToken() int64 { return l.own("fencing token").Token() }

// Path returns the path of the lease's znode on the server, namespace included.
func (l *Lease) Path() string { return l.own("path").Path() }

// TrustedUntil returns the time until which the lease is certainly valid. The time moves forward as long as the
// session is proven alive. Right before each step that can't be fenced, call TrustedUntil again and compare the result
// with time.Now. For an ended lease, the result is not after the end.
//
// After a pause of the process the result is right even before the context ends. After a suspension of the machine
// it is right at once on Linux (CLOCK_BOOTTIME), macOS (CLOCK_MONOTONIC_RAW) and Windows (the interrupt time), because
// these clocks continue meanwhile. On other systems trust ends late by the length of the suspension: fence there, or
// keep the machine from sleeping.
func (l *Lease) TrustedUntil() time.Time { return l.own("trusted until").TrustedUntil() }

// Revoked returns a channel that is closed when a peer asks for the lease. The lease is still held, so finish or undo
// the work, and call Release. A request during the wait for the lease counts as well. The end of the lease does not
// close the channel: also wait for the end of Context.
func (l *Lease) Revoked() <-chan struct{} { return l.own("revoked").Revoked() }

// Check returns a guard for a transaction with zk.Conn.Multi. The transaction is executed only if the lease's znode
// exists. After release or loss the transaction fails with zk.ErrNoNode and changes nothing. In a cohort the znode
// outlives a lease that is passed on (see mutex.WithCohort).
func (l *Lease) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: l.own("check").Path(), Version: -1}
}

// Release gives the lease back. Call Release once per Acquire, typically with defer. The last Release of a
// re-entered lock deletes the znode. Release returns
//
//   - nil when the znode is deleted, or when another lease on the same hold remains, or when a cohort keeps the znode.
//     A lease that ended with ErrMaxHold is no exception. With mutex.WithBackgroundRelease, the deletion is sent but
//     not confirmed;
//   - the cause if the lease was lost: then nothing is left to release;
//   - ErrNotHeld when called again;
//   - ErrNodeNotDeleted if the znode could not be deleted within the operation timeout. The deletion is
//     repeated in the background until the deletion is confirmed or the session is over. All unanswered
//     releases of a client share a single operation timeout, which counts from the first release: so later
//     releases return sooner;
//   - ErrClosed if the client is closed meanwhile. The server deletes the znode together with the session.
//
// The context is over when Release returns, also after an error.
//
// For a term of leadership Release only asks for the step-down, and returns at once. The context ends, the leader's
// function or the listeners return, and then the znode is deleted. A latch then joins again at the tail, after a pause
// if the term was short. A selector continues as after any other term.
func (l *Lease) Release() error {
	if l.entry == nil {
		return &OpError{Op: "lease: release", Err: ErrNotHeld}
	}
	return l.releaseError(l.entry.Leave())
}

func (l *Lease) releaseError(err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: "lease: release", Path: l.entry.Path(), Err: err}
}

// own returns the entry, and panics for a zero value.
func (l *Lease) own(op string) *session.Entry {
	if l.entry == nil {
		panic(&OpError{Op: "lease: " + op, Err: zkutil.Invalid(errors.New("zero value; use a lease that Acquire returned"))})
	}
	return l.entry
}

// String returns "mutex /locks/a, token 4294967310".
func (l *Lease) String() string {
	if l == nil || l.entry == nil {
		return "lease(nil)"
	}
	return l.entry.Recipe() + " " + l.entry.UserPath() + ", token " + strconv.FormatInt(l.FencingToken(), 10)
}

// LogValue returns a group with the recipe, path, znode, token and id.
func (l *Lease) LogValue() slog.Value {
	if l == nil || l.entry == nil {
		return slog.StringValue(l.String())
	}
	return slog.GroupValue(
		slog.String("recipe", l.entry.Recipe()), slog.String("path", l.entry.UserPath()), slog.String("znode", l.Path()),
		slog.Int64("token", l.FencingToken()), slog.String("id", l.entry.ID()))
}

// Participant is a contender of a recipe. If the ACL forbids reading the znode, only the Path is set, and Token
// and Since if the server shows both all the same.
type Participant struct {
	// ID is the content of the znode. It is the id set by WithID of the recipe, or else by WithID of the client.
	ID string
	// Path is the path of the znode on the server, namespace included.
	Path string
	// Leader is true for the first contender of the queue. No other contender can hold the lock or lead. With a
	// read-write lock or a semaphore, Leader is true for all contenders who may hold the lock together. Such a
	// contender need not hold the lock. The znode of a killed process exists until its session expires, and the znode
	// of a leader that steps down until its work returns.
	Leader bool
	// Token is the fencing token of the contender, now or later, as holder or leader.
	Token int64
	// Since is the time at which the znode was created, by the servers' clock. It is the start of the wait, not of the
	// hold or the term.
	Since time.Time
	// Priority is the priority of a candidate in an election (see WithPriority of latch and selector). A contender without
	// a priority has 0.
	Priority int
	// Revoked is true if a peer asked for the lease. The request overwrites the ID, which is then empty.
	Revoked bool
	// NotEphemeral is true if the znode is not ephemeral, and so stays until a client deletes it. Such a znode is a
	// directory or a leftover with the name of a contender. No recipe creates one, and all recipes wait for its
	// deletion, as Curator does. No contender can hold the lock or lead behind it.
	NotEphemeral bool
}
