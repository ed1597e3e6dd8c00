package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// InterProcessSemaphore is a number of permits on a path. Create it with [New]; it needs no closing.
type InterProcessSemaphore struct {
	base      recipe.Base // of the path itself
	permits   queue.Permits
	limit     int          // of New
	shared    *sharedLimit // nil: limit is the limit
	isChecked atomic.Bool  // the layout of the path
}

// Option configures an [InterProcessSemaphore] or an [InterProcessSemaphoreMutex], when it is made.
type Option func(*config) error

// config is what the options set.
type config struct {
	id         []byte // nil: the client's
	name       string
	sharedPath string // "": the limit is not shared
}

// WithID sets what Participants shows for the permits; the default is that of recipes.WithID. At most
// 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the semaphore, of at most 128 bytes, which is the same in all processes. It
// is the Name in the hooks of [recipes.Trace], for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithSharedLimit makes the number in the znode at path the limit: a SharedCount of Curator, four bytes
// in big-endian order. If the znode is missing, the first Acquire creates it with the limit of New. A
// limit that grows wakes those who wait. One that is lowered counts for later acquisitions, and takes no
// permit back. The path is below the client's namespace, and must not be the semaphore's own, nor below
// it. A mutex has no shared limit.
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
// limit must be positive, and the same in all processes: each goes by its own. With [WithSharedLimit]
// it is the limit to begin with, and may be 0. The znodes of path are created when first needed. Nothing
// is sent to the server here.
func New(c *recipes.Client, path string, limit int, opts ...Option) (*InterProcessSemaphore, error) {
	return newSemaphore(c, "semaphore", path, limit, opts)
}

func newSemaphore(c *recipes.Client, kind, path string, limit int, opts []Option) (*InterProcessSemaphore, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: kind})
	if err != nil {
		return nil, err
	}
	s := &InterProcessSemaphore{base: base, limit: limit}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	if err := s.useLimit(c, cfg.sharedPath); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	own := base.Queue
	own.Name = cfg.name
	own.Markers = nil // so that CheckLayout finds the contenders of any lock on the path itself
	s.permits = queue.Permits{
		Turn: &queue.Queue{
			Session: own.Session, Recipe: kind, Path: path, Dir: zkutil.Join(own.Dir, "locks"), Prefix: "lock-", Markers: queue.Markers,
			Data: cfg.id, Rule: queue.Exclusive,
		},
		Taken: &queue.Queue{
			Session: own.Session, Recipe: kind, Path: path, Dir: zkutil.Join(own.Dir, "leases"), Prefix: queue.PermitMarker, Markers: []string{queue.PermitMarker},
			Data: cfg.id,
		},
		Limit: s.readLimit,
	}
	return s, nil
}

// Acquire blocks until it has a permit, and returns its lease. See [InterProcessSemaphore.AcquireN].
func (s *InterProcessSemaphore) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return first(s.acquireN(ctx, "acquire", 1, true))
}

// AcquireN blocks until it has n permits, and returns their leases: all of them, or none. Permits are
// granted in the order in which the requests came: while AcquireN waits for many, a later request for
// few waits, too. The context bounds only the wait: the leases remain valid when ctx ends.
//
// The error is
//
//   - ErrInvalidArgument, if n is not positive, or more than the limit of New. With a shared limit,
//     AcquireN for more than that waits until the limit has grown;
//   - a *recipes.WaitError, which matches the error of ctx, if ctx ends first. Its Position is that
//     among those who wait: 1 is the next one to be served, and its Holder is the first permit, with the
//     ID after a wait of a second. For the others Holder is the first of those who wait;
//   - ErrSharedLimit, if the znode of the shared limit has no limit in it;
//   - ErrOtherLayout, if the path has contenders of another kind of lock at the first call;
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull: at once, if the znodes of n permits and of one
//     request are more than the session may have;
//   - an error of the server, or the last one when the retry policy gives up. For zk.ErrNoAuth the
//     text names the znode whose ACL refuses.
//
// After an error the znodes of the attempt are deleted, if necessary in the background.
func (s *InterProcessSemaphore) AcquireN(ctx context.Context, n int) ([]*recipes.Lease, error) {
	return s.acquireN(ctx, "acquire", n, true)
}

// TryAcquire is TryAcquireN for one permit.
func (s *InterProcessSemaphore) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return first(s.acquireN(ctx, "try acquire", 1, false))
}

// TryAcquireN is AcquireN without the wait for other contenders. If fewer than n permits are free, or
// if another contender is ahead, TryAcquireN leaves no znode and returns ErrNotAcquired. A contender that
// is taking a free permit at that moment is ahead as well. TryAcquireN still waits for the server's
// answers: bound it by ctx. If ctx ends first, it fails with a *recipes.WaitError, as AcquireN does.
func (s *InterProcessSemaphore) TryAcquireN(ctx context.Context, n int) ([]*recipes.Lease, error) {
	return s.acquireN(ctx, "try acquire", n, false)
}

func (s *InterProcessSemaphore) acquireN(ctx context.Context, op string, n int, mayWait bool) ([]*recipes.Lease, error) {
	if err := s.checkN(n); err != nil {
		return nil, s.base.InvalidArgument(op, err)
	}
	acquisition := s.base.Queue.BeginAcquisition(ctx, !mayWait)
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

func (s *InterProcessSemaphore) acquireEntries(ctx context.Context, n int, mayWait bool, a *session.Acquisition) ([]*session.Entry, error) {
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

// Do acquires a permit, calls fn, and releases the permit. The context that fn gets ends with the lease,
// with ctx, or when fn returns. If fn panics, Do releases the permit and panics on.
//
// Do returns an error in one line of text. errors.Is finds in it
//
//   - the loss of the lease if there was one (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged, followed by ErrNodeNotDeleted if the release has failed;
//   - the error of Acquire, if there was no permit and fn was not called.
func (s *InterProcessSemaphore) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, s.base.OpError, s.Acquire, fn)
}

// Participants returns the permits that are held, in the order in which they were granted, each with
// the ID of its holder. Those who wait are not among them. It is a snapshot: a permit that is given back
// while it is taken is left out. After the limit was lowered it shows as many as the limit says, the first ones:
// the others look like the znodes that Java clients make before there is room for them. Package inspect, and
// "zkr ls", show all.
func (s *InterProcessSemaphore) Participants(ctx context.Context) ([]recipes.Participant, error) {
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
