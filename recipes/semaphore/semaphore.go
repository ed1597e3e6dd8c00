package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/permits"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// InterProcessSemaphore is a number of permits on a path. Create it with [New]; it needs no closing.
type InterProcessSemaphore struct {
	base      recipe.Base // for the path itself
	permits   permits.Pool
	limit     int          // passed to New
	shared    *sharedLimit // nil: limit applies
	isChecked atomic.Bool  // whether the layout of the path was checked
}

// Option configures an [InterProcessSemaphore] or an [InterProcessSemaphoreMutex] at its creation.
type Option func(*config) error

// config holds the values of the options.
type config struct {
	id         []byte // nil for the client's ID
	name       string
	maxHold    time.Duration // 0: none
	sharedPath string        // "" if the limit is not shared
}

// WithID sets the ID that Participants shows for the permits. The default is the ID of recipes.WithID.
// At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the semaphore, of at most 128 bytes, which is the same in all processes. The
// hooks of [recipes.Trace] have it as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithMaxHold ends the context of the lease of a permit with ErrMaxHold once it has been held for d. Use it to bound holders
// that hang or forget to release.
//
// The end of the context asks the work to stop, as a loss does, and cannot make it stop. So the znode exists until Release, or for Do until
// the function returns, and no other contender gets the permit meanwhile. The log says so at Warn. Release deletes the znode, and returns
// nil once it is deleted. The error of Do matches ErrMaxHold. To let others continue while code that ignores its context may still run,
// delete the znode from outside, and have the guarded resource refuse lower tokens (see [recipes.Lease.FencingToken]).
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithSharedLimit makes the number in the znode at path the limit. It is a SharedCount of Curator, four bytes in
// big-endian order. If the znode is missing, the first Acquire creates it with the limit of New. A higher limit wakes
// waiters. A lower limit applies to later acquisitions, and takes no permit back. The path is below the client's
// namespace, and must be neither the semaphore's own path, nor below or above it. A mutex has no shared limit.
func WithSharedLimit(path string) Option {
	return func(cfg *config) error {
		if path == "" {
			return errors.New("shared limit: empty path")
		}
		cfg.sharedPath = path
		return nil
	}
}

// New returns a semaphore with limit permits on path, an absolute path below the client's namespace.
// limit must be positive, and the same in all processes, because each process applies its own limit.
// With [WithSharedLimit], limit is the initial limit, and may be 0. The znodes of path are created when
// first needed. New sends nothing to the server.
//
// New refuses, with ErrInvalidPath, a path with a segment that has the name of a contender, such as lock-0000000000,
// because the segment's znode would block a lock or an election on the path above.
func New(c *recipes.Client, path string, limit int, opts ...Option) (*InterProcessSemaphore, error) {
	s := &InterProcessSemaphore{}
	if err := s.init(c, "semaphore", path, limit, opts); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *InterProcessSemaphore) init(c *recipes.Client, kind, path string, limit int, opts []Option) error {
	base, err := recipe.New(c, path, queue.Queue{Recipe: kind})
	if err != nil {
		return err
	}
	s.base, s.limit = base, limit
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return base.InvalidArgument("new", err)
	}
	if err := s.useLimit(c, cfg.sharedPath); err != nil {
		return base.InvalidArgument("new", err)
	}
	own := base.Queue
	own.Name = cfg.name
	own.Markers = nil // so that CheckLayout finds the contenders of any lock on the path itself
	s.permits = permits.Pool{
		Turn: &queue.Queue{
			Session: own.Session, Recipe: kind, Path: path, Dir: zkutil.Join(own.Dir, "locks"), Prefix: "lock-", Markers: queue.Markers,
			Data: cfg.id, Rule: queue.Exclusive,
		},
		Taken: &queue.Queue{
			Session: own.Session, Recipe: kind, Path: path, Dir: zkutil.Join(own.Dir, "leases"), Prefix: queue.PermitMarker, Markers: []string{queue.PermitMarker},
			Data: cfg.id, MaxHold: cfg.maxHold,
		},
		Limit: s.readLimit,
	}
	return nil
}

// Acquire blocks until a permit is acquired, and returns its lease. See
// [InterProcessSemaphore.AcquireN].
func (s *InterProcessSemaphore) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return first(s.acquireN(ctx, "acquire", 1, true))
}

// AcquireN blocks until n permits are acquired, and returns all their leases or none. Permits are granted in the order
// of the requests. While AcquireN waits for many permits, a later request for few permits waits, too. The context
// bounds only the wait. The leases remain valid when ctx ends.
//
// The error is
//
//   - ErrInvalidArgument, if n is not positive, or more than the limit of New;
//   - a *recipes.WaitError, which matches ErrNotAcquired and the error of ctx, if ctx ends first. Its Position is the
//     position among the waiters: 1 is next in line. For the waiter at 1, Holder is the first permit, with
//     the ID after a wait of a second. For all other waiters, Holder is the first waiter. The error also
//     matches ErrAboveLimit if a shared limit was lower than n;
//   - ErrSharedLimit, if the content of a shared limit's znode is not a limit;
//   - ErrOtherLayout, if the path has contenders of another kind of lock at the first call;
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull: at once, if the znodes of n permits and of one
//     request need more bytes than the session has left, counting the bytes of its contenders on this path as
//     left;
//   - a server error, or the last error when the retry policy gives up. For zk.ErrNoAuth the text names
//     the znode whose ACL refuses.
//
// With a shared limit, a request for more permits than the limit leaves the queue at its turn, so that smaller requests
// are served. The log says so at Warn. Once the limit grows, the request queues again at the tail. While the limit is
// 0, no request fits, and all keep their places.
//
// After an error the znodes of the attempt are deleted, if necessary in the background. The deletion precedes later
// requests of the same client. A TryAcquire right after an AcquireN that timed out is not refused because of that
// AcquireN.
func (s *InterProcessSemaphore) AcquireN(ctx context.Context, n int) ([]*recipes.Lease, error) {
	return s.acquireN(ctx, "acquire", n, true)
}

// TryAcquire is TryAcquireN for one permit.
func (s *InterProcessSemaphore) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return first(s.acquireN(ctx, "try acquire", 1, false))
}

// TryAcquireN is AcquireN without waiting for other contenders. If fewer than n permits are free, or if
// another contender is ahead, TryAcquireN leaves no znode and fails with a *recipes.WaitError, which matches
// ErrNotAcquired. A contender that is taking a free permit at the same moment counts as ahead. If a shared
// limit is lower than n, the error also matches ErrAboveLimit. TryAcquireN still waits for the server's
// answers: use ctx to bound this wait. If ctx ends first, the error also matches the error of ctx.
func (s *InterProcessSemaphore) TryAcquireN(ctx context.Context, n int) ([]*recipes.Lease, error) {
	return s.acquireN(ctx, "try acquire", n, false)
}

func (s *InterProcessSemaphore) acquireN(ctx context.Context, op string, n int, mayWait bool) ([]*recipes.Lease, error) {
	if err := s.base.Check(op); err != nil {
		return nil, err
	}
	if err := s.checkN(n); err != nil {
		return nil, s.base.InvalidArgument(op, err)
	}
	acquisition := s.base.Queue.BeginAcquisition(ctx, !mayWait, 0)
	entries, err := s.acquireEntries(ctx, n, mayWait, acquisition)
	if err := s.base.EndAcquisition(acquisition, op, false, err, entries...); err != nil {
		return nil, err
	}
	leases := make([]*recipes.Lease, n)
	for i, entry := range entries {
		leases[i] = recipe.NewLease(entry)
	}
	return leases, nil
}

func (s *InterProcessSemaphore) acquireEntries(ctx context.Context, n int, mayWait bool, a *trace.Acquisition) ([]*session.Entry, error) {
	if !s.isChecked.Load() {
		if err := s.base.Queue.CheckLayout(ctx); err != nil {
			return nil, err
		}
		s.isChecked.Store(true)
	}
	return s.permits.Acquire(ctx, n, mayWait, a)
}

func (s *InterProcessSemaphore) checkN(n int) error {
	switch {
	case n <= 0:
		return fmt.Errorf("%d permits: not positive", n)
	case s.shared == nil && n > s.limit:
		return fmt.Errorf("%d permits: more than the limit of %d", n, s.limit)
	default:
		return nil
	}
}

// first returns the lease of an acquisition of one permit.
func first(leases []*recipes.Lease, err error) (*recipes.Lease, error) {
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

// Do acquires a permit, calls fn, and releases the permit. ctx bounds both the wait and the work. A deadline meant for
// the wait also ends the work. Use [InterProcessSemaphore.DoWithin] to bound the wait alone.
//
// The context passed to fn ends with the lease, with ctx, or when fn returns. It has the deadline and
// the cause of ctx. If fn panics, Do releases the permit and re-panics.
//
// Do returns an error whose text is one line. errors.Is finds in it
//
//   - the loss of the lease, if the lease was lost (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged;
//   - the error of Acquire, if no permit was acquired and fn was not called.
//
// Do returns when the znode is deleted, so that others can have the permit. Do does not wait for the deletion beyond
// the end of ctx, nor beyond the time until which the lease was trusted, nor beyond the operation timeout. After that
// the deletion continues in the background, and the client logs a record at Warn.
func (s *InterProcessSemaphore) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, s.base.OpError, s.Acquire, recipe.EndWork, fn)
}

// DoWithin is Do with a separate bound for the acquisition: wait bounds the wait for the permit, and
// ctx the work and the call as a whole. If the permit was not acquired within wait, or before the end
// of ctx, the error has a *recipes.WaitError, and fn was not called.
//
// With a wait of 0 or less, DoWithin does not wait for other contenders, like TryAcquire. DoWithin still
// waits for the server's answers: use ctx to bound this wait.
func (s *InterProcessSemaphore) DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, s.base.OpError, recipe.Within(wait, s.Acquire, s.TryAcquire), recipe.EndWork, fn)
}

// Participants returns the permits that are held, in the order in which they were granted, each with its holder's ID,
// and without waiters. The result is a snapshot, without permits that are released while it is taken. After the limit
// was lowered, Participants returns only the first permits, as many as the limit, because the others look like the
// znodes that Java clients create before a permit is free. Package inspect, and "zkr ls", show all.
func (s *InterProcessSemaphore) Participants(ctx context.Context) ([]recipes.Participant, error) {
	if err := s.base.Check("participants"); err != nil {
		return nil, err
	}
	limit, err := s.peekLimit(ctx)
	if err != nil {
		return nil, s.base.OpError("participants", err)
	}
	held := *s.permits.Taken
	held.Rule = queue.UpTo(limit)
	all, err := recipe.Base{Path: s.base.Path, Queue: &held}.Participants(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p recipes.Participant) bool { return !p.Leader }), nil
}
