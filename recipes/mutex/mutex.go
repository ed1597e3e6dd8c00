package mutex

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// InterProcessMutex is a lock on a path. Create it with [New]; it needs no closing.
type InterProcessMutex struct {
	path      string // as given
	queue     *zkutil.Queue
	listener  func(*recipes.Lease) // may be nil
	callbacks *zkutil.Callbacks
}

// Option configures an [InterProcessMutex], in New alone.
type Option func(*config) error

// config is what the options of a mutex set.
type config struct {
	id       []byte // nil: the host's address
	listener func(*recipes.Lease)
}

// maxID bounds what a contender may write about itself into its znode.
const maxID = 64 << 10

// WithID sets what Participants shows for this mutex's contenders; the default is
// the host's address. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error {
		if len(id) > maxID {
			return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
		}
		cfg.id = []byte(id)
		return nil
	}
}

// WithRevocationListener has fn called, at most once a hold, when a peer asks for the
// lock back. The lock stays held until the lease is released. Calls come one at a
// time, from a goroutine of the client; a panic is contained and logged. With
// re-entrant leases fn gets the first of them.
func WithRevocationListener(fn func(*recipes.Lease)) Option {
	return func(cfg *config) error {
		if fn == nil {
			return errors.New("revocation listener: nil")
		}
		cfg.listener = fn
		return nil
	}
}

// New returns a mutex on path, an absolute path below the client's namespace. The
// znodes of path are created when first needed. Nothing is sent to the server here.
func New(c *recipes.Client, path string, opts ...Option) (*InterProcessMutex, error) {
	failed := func(err error) (*InterProcessMutex, error) {
		return nil, &recipes.OpError{Op: "mutex: new", Path: path, Err: zkutil.Invalid(err)}
	}
	session, dir, err := c.Attach(zkutil.RecipeAccess(), path)
	if err != nil {
		return failed(err)
	}
	var cfg config
	for _, opt := range opts {
		if opt == nil {
			return failed(errors.New("nil option"))
		}
		if err := opt(&cfg); err != nil {
			return failed(err)
		}
	}
	return &InterProcessMutex{
		path:      path,
		listener:  cfg.listener,
		callbacks: session.Callbacks(),
		queue: &zkutil.Queue{
			Session: session,
			Recipe:  "mutex",
			Dir:     dir,
			Prefix:  "lock-",
			Markers: zkutil.Markers,
			Data:    cfg.id,
			Rule:    zkutil.Exclusive,
		},
	}, nil
}

// Acquire blocks until the lock is held, and returns the lease. The context bounds
// the wait alone: the lease outlives it. With a context that carries this lock's
// hold, Acquire re-enters at once.
//
// It fails with a *recipes.WaitError, which matches the error of ctx, when that ends first: before
// the call, or while it waits, with or without a hold; with the cause of the hold when ctx
// carries one that has ended; with ErrClosed; with
// ErrSequenceExhausted; or with what the server or the retry policy says: where that is
// zk.ErrNoAuth, the text names the znode whose ACL refuses. Whatever the error, no znode is
// left behind: one that could not be deleted at once is deleted in the background.
func (m *InterProcessMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.enter(ctx, "mutex: acquire", m.queue.Acquire)
}

// TryAcquire is Acquire without the wait for others: if another contender holds the
// lock or is ahead, it returns ErrNotAcquired, and its znode is gone by then. It still
// waits for a server to answer: bound it by ctx. When that ends first, TryAcquire fails with a
// *recipes.WaitError, as Acquire does.
func (m *InterProcessMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.enter(ctx, "mutex: try acquire", m.queue.TryAcquire)
}

func (m *InterProcessMutex) enter(ctx context.Context, op string, acquire func(context.Context) (*zkutil.Entry, error)) (*recipes.Lease, error) {
	entry, err := m.queue.Reenter(ctx)
	first := entry == nil && err == nil
	if first {
		entry, err = acquire(ctx)
	}
	if err != nil {
		return nil, &recipes.OpError{Op: op, Path: m.path, Err: recipes.WaitErrorOf(err)}
	}
	lease := recipes.NewLease(entry)
	if first && m.listener != nil {
		entry.OnRevoked(m.callbacks, func() { m.listener(lease) })
	}
	return lease, nil
}

// Do runs fn while it holds the lock, and releases it. The context that fn gets
// re-enters, and ends with the lease, or with ctx, or when fn returns. A panic of fn goes on
// after the release.
//
// Do returns, in one line of text and for errors.Is to find,
//
//   - the loss of the lease if there was one (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), and then fn's error, which may be the Canceled of its context;
//   - else fn's error as it is, and then ErrNodeNotDeleted if the release has failed;
//   - if the lock was not acquired, and fn not called, the error of Acquire. If ctx has ended,
//     that is a *recipes.WaitError, re-entry included: fn's own deadline is none.
func (m *InterProcessMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) (err error) {
	if fn == nil {
		return &recipes.OpError{Op: "mutex: do", Path: m.path, Err: zkutil.Invalid(errors.New("nil function"))}
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(lease.Context())
	deadline, timed := ctx.Deadline()
	unbind := context.AfterFunc(ctx, func() {
		if !timed || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	if timed { // fn sees the deadline, and errors of it as such
		var stop context.CancelFunc
		inner, stop = context.WithDeadline(inner, deadline)
		defer stop()
	}
	defer func() {
		unbind()
		cancel(recipes.ErrReleased)
		err = m.afterRelease(err, lease.Release())
	}()
	return fn(inner, lease) //nolint:contextcheck // the lease's context has the values of ctx
}

// afterRelease is what Do returns, given the results of its function and of Release.
func (m *InterProcessMutex) afterRelease(err, released error) error {
	switch {
	case released == nil || errors.Is(released, recipes.ErrNotHeld):
		return err // in the second case fn has released it, and was told of a loss
	case errors.Is(released, recipes.ErrNodeNotDeleted):
		return zkutil.Both(err, released)
	default:
		return &recipes.OpError{Op: "mutex: do", Path: m.path, Err: zkutil.LossAndError(errors.Unwrap(released), err)}
	}
}

// Participants returns those who hold or wait for the lock, in queue order, the
// holder first. It is a snapshot: those who leave while it is taken are left out.
func (m *InterProcessMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	queue, err := m.queue.Participants(ctx)
	if err != nil {
		return nil, &recipes.OpError{Op: "mutex: participants", Path: m.path, Err: err}
	}
	return recipes.ParticipantsOf(queue), nil
}
