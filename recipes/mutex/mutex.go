package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/cohort"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

func init() {
	recipe.RegisterQueue(func(_ context.Context, m *InterProcessMutex) *queue.Queue {
		own, _ := m.contender.(*queue.Queue) // nil for a cohort
		return own
	})
}

// InterProcessMutex is a lock on a path. Create a mutex with [New]; a mutex needs no closing.
type InterProcessMutex struct {
	base      recipe.Base
	contender contender            // the queue, or the cohort in the queue
	onRevoked func(*recipes.Lease) // may be nil
	callbacks *callbacks.Order     // of onRevoked
}

// Option configures an [InterProcessMutex], in New alone.
type Option func(*config) error

// config has the values set by the options of a mutex.
type config struct {
	id        []byte // nil for the client's
	name      string
	onRevoked func(*recipes.Lease)
	cohort    *cohort.Bounds // nil: none
	maxHold   time.Duration  // 0: none

	isReleasedInBackground bool
}

// WithID sets the ID that Participants shows for the contenders of the mutex; the default is the id of the client (see
// recipes.WithID). At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the lock, of at most 128 bytes, which is the same in all processes. The hooks of
// [recipes.Trace] get the name as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithMaxHold ends the context of a lease with ErrMaxHold once it has been held for d. Use it to bound holders that hang or
// forget to release. A re-entry does not extend the time. In a cohort, d counts for each caller, not for the tenure.
//
// The end of the context asks the work to stop, as a loss does, and cannot make it stop. So the znode exists until Release, or for Do
// until the function returns, and no other contender gets the lock meanwhile. The log says so at Warn. Release deletes the znode, and
// returns nil once it is deleted. The error of Do matches ErrMaxHold. To let others continue while code that ignores its context may still
// run, delete the znode from outside, and have the guarded resource refuse lower tokens (see [recipes.Lease.FencingToken]).
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithBackgroundRelease makes Release, Do and DoWithin return as soon as the deletion of the znode is sent, so that a caller waits for one
// commit instead of two. Other clients may still find the lock held for the time of that commit. If a caller signals another client that
// the lock is free, the signal may be faster, and the TryAcquire of that client is refused.
//
// The context of the lease ends before, as always. An Acquire of the same client follows the deletion. Without a connection the call
// returns at once. The deletion is then sent in the background, and a deletion that fails is repeated and logged at Warn. Release does not
// return ErrNodeNotDeleted. Close and Shutdown of the client end with the znode deleted, but a process that exits without them may leave it
// until the session expires.
//
// The client counts the znode against its room until the deletion is answered: at the limit of a session, an acquisition right behind
// Release may fail as if the lock were still held.
func WithBackgroundRelease() Option {
	return func(cfg *config) error {
		cfg.isReleasedInBackground = true
		return nil
	}
}

// WithRevocationListener sets a function that is called when a peer asks for the lock, at most once per hold. The lock
// stays held until the lease is released. Calls run one at a time, on a goroutine of the client. A panic is recovered
// and logged. With re-entrant leases fn gets the first lease.
func WithRevocationListener(fn func(*recipes.Lease)) Option {
	return func(cfg *config) error {
		if fn == nil {
			return errors.New("revocation listener: nil")
		}
		cfg.onRevoked = fn
		return nil
	}
}

// New returns a mutex on path, an absolute path below the client's namespace. The
// znodes of path are created when first needed. Nothing is sent to the server here.
//
// A path with a segment that has the name of a contender, such as lock-0000000000, is refused with
// ErrInvalidPath: such a znode would block a lock or an election on the parent path.
func New(c *recipes.Client, path string, opts ...Option) (*InterProcessMutex, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: "mutex", Prefix: "lock-", Rule: queue.Exclusive})
	if err != nil {
		return nil, err
	}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	base.Queue.Data, base.Queue.Name, base.Queue.NoWait = cfg.id, cfg.name, cfg.isReleasedInBackground
	m := &InterProcessMutex{base: base, contender: base.Queue, onRevoked: cfg.onRevoked, callbacks: base.Queue.Session.Callbacks()}
	if cfg.cohort == nil {
		base.Queue.MaxHold = cfg.maxHold
	} else if m.contender, err = cohort.New(base.Queue, *cfg.cohort, cfg.maxHold); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	return m, nil
}

// Acquire blocks until the lock is held, and returns the lease. The context bounds only the wait. The lease remains
// valid when ctx ends. With a context that carries this lock's hold, Acquire re-enters at once.
//
// The error is
//
//   - a *recipes.WaitError, which matches ErrNotAcquired and the error of ctx, if ctx ends first: before the call
//     or during the wait, with or without a hold;
//   - the cause of the end, if ctx carries an ended hold of this lock;
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull;
//   - an error of the server, or the last error when the retry policy gives up. For zk.ErrNoAuth the text names
//     the znode whose ACL refuses.
//
// After an error the znode of the attempt is deleted, if necessary in the background.
func (m *InterProcessMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "acquire", true)
}

// TryAcquire is Acquire without the wait for other contenders. If another contender holds the lock or is ahead,
// TryAcquire deletes its own znode and fails with a *recipes.WaitError, which matches ErrNotAcquired and has the
// position and the holder. It still waits for the server's answers: bound the call by ctx. If ctx ends first,
// the error also matches the error of ctx.
func (m *InterProcessMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "try acquire", false)
}

// acquireLease re-enters the hold that ctx carries, or else acquires a new hold.
func (m *InterProcessMutex) acquireLease(ctx context.Context, op string, mayWait bool) (*recipes.Lease, error) {
	if err := m.base.Check(op); err != nil {
		return nil, err
	}
	acquisition := m.base.Queue.BeginAcquisition(ctx, !mayWait, 0)
	entry, err := m.base.Queue.Reenter(ctx)
	isNewHold := entry == nil && err == nil
	if isNewHold {
		entry, err = m.contender.Acquire(ctx, mayWait, acquisition)
	}
	if err := m.base.EndAcquisition(acquisition, op, !isNewHold, err, entry); err != nil {
		return nil, err
	}
	lease := recipe.NewLease(entry)
	if isNewHold && m.onRevoked != nil {
		entry.OnRevoked(m.callbacks, func() { m.onRevoked(lease) })
	}
	return lease, nil
}

// Do acquires the lock, calls fn, and releases the lock. ctx bounds both the wait and the work. A deadline meant for
// the wait also ends the work. Use [InterProcessMutex.DoWithin] to bound the wait alone.
//
// The context passed to fn re-enters. It ends with the lease, with ctx, or when fn returns, and has the
// deadline and the cause of ctx. If fn panics, Do releases the lock and panics on.
//
// Do returns an error in one line of text. errors.Is finds in it
//
//   - the loss of the lease if the lease was lost (ErrSessionLost, ErrSuspended, ErrNodeDeleted, ErrClosed),
//     followed by fn's error, which may be the Canceled of fn's context;
//   - otherwise fn's error, unchanged;
//   - the error of Acquire, if the lock was not acquired and fn was not called. If ctx ended, the error is a
//     *recipes.WaitError, also for a re-entry. A deadline inside fn is no WaitError.
//
// Do returns when the znode is deleted, so that others can have the lock. Do does not wait for the deletion beyond the
// end of ctx, nor beyond the time until which the lease was trusted, nor beyond the operation timeout. The deletion
// then continues in the background, and the client's log gets a record at Warn.
func (m *InterProcessMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, m.base.OpError, m.Acquire, recipe.EndWork, fn)
}

// DoWithin is Do with a bound on the acquisition alone: wait bounds the wait for the lock, and ctx the
// work, and the whole. If the lock was not acquired within wait, or before the end of ctx, the error
// has a *recipes.WaitError, and fn was not called.
//
// With a wait of 0 or less, DoWithin does not wait for other contenders, like TryAcquire. DoWithin still waits
// for the server's answers: bound the call by ctx.
func (m *InterProcessMutex) DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, m.base.OpError, recipe.Within(wait, m.Acquire, m.TryAcquire), recipe.EndWork, fn)
}

// Participants returns the contenders that hold or wait for the lock, in queue order, the holder first. The result is a
// snapshot, without contenders that leave meanwhile. A cohort is a single contender. The ID of this client's own cohort
// has the number of waiters inside, as in "web-3 (+12 inside)".
func (m *InterProcessMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	participants, err := m.base.Participants(ctx)
	m.addWaitingInside(participants)
	return participants, err
}
