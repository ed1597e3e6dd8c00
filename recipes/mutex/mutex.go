package mutex

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// InterProcessMutex is a lock on a path. Create it with [New]; it needs no closing.
type InterProcessMutex struct {
	base      recipe.Base
	contender contender            // the queue, or the cohort in it
	onRevoked func(*recipes.Lease) // may be nil
	callbacks *session.Callbacks   // of onRevoked
}

// Option configures an [InterProcessMutex], in New alone.
type Option func(*config) error

// config is what the options of a mutex set.
type config struct {
	id        []byte // nil: the client's
	name      string
	onRevoked func(*recipes.Lease)
	cohort    *queue.Bounds // nil: none
}

// WithID sets what Participants shows for this mutex's contenders; the default is
// that of recipes.WithID. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the lock, of at most 128 bytes, which is the same in all processes. It is the
// Name in the hooks of [recipes.Trace], for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
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
	base.Queue.Data, base.Queue.Name = cfg.id, cfg.name
	m := &InterProcessMutex{base: base, contender: base.Queue, onRevoked: cfg.onRevoked, callbacks: base.Queue.Session.Callbacks()}
	if cfg.cohort != nil {
		if m.contender, err = base.Queue.WithCohort(*cfg.cohort); err != nil {
			return nil, base.InvalidArgument("new", err)
		}
	}
	return m, nil
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
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull;
//   - an error of the server, or the last one when the retry policy gives up. For zk.ErrNoAuth the
//     text names the znode whose ACL refuses.
//
// After an error the znode of the attempt is deleted, if necessary in the background.
func (m *InterProcessMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "acquire", true)
}

// TryAcquire is Acquire without the wait for other contenders. If one of them holds the lock or is
// ahead, TryAcquire deletes its own znode and returns ErrNotAcquired. It still waits for the server's
// answers: bound it by ctx. If ctx ends first, it fails with a *recipes.WaitError, as Acquire does.
func (m *InterProcessMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquireLease(ctx, "try acquire", false)
}

// acquireLease re-enters the hold that ctx carries, or else acquires one. Its frame is small, because thousands
// of callers may wait in it for hours.
func (m *InterProcessMutex) acquireLease(ctx context.Context, op string, mayWait bool) (*recipes.Lease, error) {
	acquisition := m.base.Queue.BeginAcquisition(ctx, !mayWait)
	entry, err := m.base.Queue.Reenter(ctx)
	isNewHold := entry == nil && err == nil
	if isNewHold {
		entry, err = m.contender.AcquireTraced(ctx, mayWait, acquisition)
	}
	if err != nil {
		err = m.errorOf(op, err)
		acquisition.Fail(err)
		return nil, err
	}
	acquisition.Succeed(!isNewHold, entry)
	return m.newLease(entry, isNewHold), nil
}

func (m *InterProcessMutex) errorOf(op string, err error) error {
	return m.base.OpError(op, recipe.PublicError(err))
}

func (m *InterProcessMutex) newLease(entry *session.Entry, isNewHold bool) *recipes.Lease {
	lease := recipe.NewLease(entry)
	if isNewHold && m.onRevoked != nil {
		entry.OnRevoked(m.callbacks, func() { m.onRevoked(lease) })
	}
	return lease
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
func (m *InterProcessMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, m.base.OpError, m.Acquire, fn)
}

// Participants returns the contenders that hold or wait for the lock, in queue order, the holder
// first. It is a snapshot: a contender that leaves while it is taken is left out. A cohort is one
// contender. How many wait inside is in the ID of this client's own cohort, as in "web-3 (+12 inside)".
func (m *InterProcessMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	participants, err := m.base.Participants(ctx)
	m.addWaitingInside(participants)
	return participants, err
}
