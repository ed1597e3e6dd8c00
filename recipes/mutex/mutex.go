package mutex

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// InterProcessMutex is a lock on a path. Create it with [New]; it needs no closing.
type InterProcessMutex struct {
	base      recipe.Base
	onRevoked func(*recipes.Lease) // may be nil
	callbacks *session.Callbacks   // of onRevoked
}

// Option configures an [InterProcessMutex], in New alone.
type Option func(*config) error

// config is what the options of a mutex set.
type config struct {
	id        []byte // nil: the host's address
	onRevoked func(*recipes.Lease)
}

// WithID sets what Participants shows for this mutex's contenders; the default is
// the host's address. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithRevocationListener sets a function that is called when a peer asks for the lock, at most once a
// hold. The lock stays held until the lease is released. Calls come one at a time, from a goroutine
// of the client. A panic is recovered and logged. With re-entrant leases fn gets the first of them.
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
func New(c *recipes.Client, path string, opts ...Option) (*InterProcessMutex, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: "mutex", Prefix: "lock-", Rule: queue.Exclusive})
	if err != nil {
		return nil, err
	}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	base.Queue.Data = cfg.id
	return &InterProcessMutex{base: base, onRevoked: cfg.onRevoked, callbacks: base.Queue.Session.Callbacks()}, nil
}

// Acquire blocks until the lock is held, and returns the lease. The context bounds only the wait: the
// lease remains valid when ctx ends. With a context that carries this lock's hold, Acquire re-enters
// at once.
//
// The error is
//
//   - a *recipes.WaitError, which matches the error of ctx, if ctx ends first: before the call or
//     while it waits, with or without a hold;
//   - the cause of the end, if ctx carries a hold of this lock that has ended;
//   - ErrClosed, or ErrSequenceExhausted;
//   - an error of the server, or the last one when the retry policy gives up. For zk.ErrNoAuth the
//     text names the znode whose ACL refuses.
//
// After an error the znode of the attempt is deleted, if necessary in the background.
func (m *InterProcessMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "acquire", m.base.Queue.Acquire)
}

// TryAcquire is Acquire without the wait for other contenders. If one of them holds the lock or is
// ahead, TryAcquire deletes its own znode and returns ErrNotAcquired. It still waits for the server's
// answers: bound it by ctx. If ctx ends first, it fails with a *recipes.WaitError, as Acquire does.
func (m *InterProcessMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "try acquire", m.base.Queue.TryAcquire)
}

// acquireLease re-enters the hold that ctx carries, or else calls acquire.
func (m *InterProcessMutex) acquireLease(ctx context.Context, op string, acquire func(context.Context) (*session.Entry, error)) (*recipes.Lease, error) {
	entry, err := m.base.Queue.Reenter(ctx)
	isNewHold := entry == nil && err == nil
	if isNewHold {
		entry, err = acquire(ctx)
	}
	if err != nil {
		return nil, m.base.OpError(op, recipe.PublicError(err))
	}
	lease := recipe.NewLease(entry)
	if isNewHold && m.onRevoked != nil {
		entry.OnRevoked(m.callbacks, func() { m.onRevoked(lease) })
	}
	return lease, nil
}

// Do acquires the lock, calls fn, and releases the lock. The context that fn gets re-enters. It ends
// with the lease, with ctx, or when fn returns. If fn panics, Do releases the lock and panics on.
//
// Do returns an error in one line of text. errors.Is finds in it
//
//   - the loss of the lease if there was one (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged, followed by ErrNodeNotDeleted if the release has failed;
//   - the error of Acquire, if the lock was not acquired and fn was not called. If ctx has ended,
//     that is a *recipes.WaitError, also for a re-entry. A deadline inside fn is no WaitError.
func (m *InterProcessMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) (err error) {
	if fn == nil {
		return m.base.InvalidArgument("do", errors.New("nil function"))
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(lease.Context())
	deadline, hasDeadline := ctx.Deadline()
	unbind := context.AfterFunc(ctx, func() {
		if !hasDeadline || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	if hasDeadline { // so that fn sees the deadline, and errors of it are DeadlineExceeded
		var stop context.CancelFunc
		inner, stop = context.WithDeadline(inner, deadline)
		defer stop()
	}
	defer func() {
		unbind()
		cancel(recipes.ErrReleased)
		err = m.resultOfDo(err, lease.Release())
	}()
	return fn(inner, lease) //nolint:contextcheck // the lease's context has the values of ctx
}

// resultOfDo returns the error of Do, given those of its function and of Release.
func (m *InterProcessMutex) resultOfDo(err, released error) error {
	switch {
	case released == nil || errors.Is(released, recipes.ErrNotHeld):
		return err // with ErrNotHeld: fn has released the lease, and its Release has returned a loss
	case errors.Is(released, recipes.ErrNodeNotDeleted):
		return zkutil.Both(err, released)
	default:
		return m.base.OpError("do", zkutil.LossAndError(errors.Unwrap(released), err))
	}
}

// Participants returns the contenders that hold or wait for the lock, in queue order, the holder
// first. It is a snapshot: a contender that leaves while it is taken is left out.
func (m *InterProcessMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return m.base.Participants(ctx)
}
