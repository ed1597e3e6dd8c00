package rwlock

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// ErrUpgrade is returned by Acquire, TryAcquire and Do of the write lock, at once, if the context
// carries a valid hold of the read lock and none of the write lock. If waiting were allowed, two
// readers that wait for the write lock would wait for each other. Release the read lock first.
var ErrUpgrade = errors.New("a holder of the read lock can't get the write lock")

// InterProcessReadWriteLock is a pair of locks on a path. Create it with [New]; it needs no closing.
type InterProcessReadWriteLock struct {
	read, write Lock
}

// Option configures an [InterProcessReadWriteLock] in New.
type Option func(*config) error

// config holds the values of the options.
type config struct {
	id        []byte // nil: the client's ID
	name      string
	maxHold   time.Duration // 0: none
	onRevoked func(*recipes.Lease)
}

// WithID sets the ID that Participants shows for the contenders of both locks. The default is the ID of
// recipes.WithID. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the lock, of at most 128 bytes, which is the same in all processes. The
// hooks of [recipes.Trace] have it as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithMaxHold ends the context of a lease of either lock with ErrMaxHold once it has been held for d: the bound on a holder that
// hangs, or forgets to release. A re-entry does not extend the time.
//
// The end of the context asks the work to stop, as a loss does, and cannot make it stop. So the znode stays until
// Release, or for Do until the function has returned, and nobody else gets the lock meanwhile: the log says so at Warn. Release deletes the
// znode, and then returns an error that matches ErrMaxHold. To let others go on while code that ignores its context may still run,
// delete the znode from outside, and have the guarded resource refuse lower tokens: see [recipes.Lease.FencingToken].
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithRevocationListener sets a function that is called when a peer asks for either lock, at most once
// per hold. The lock stays held until the lease is released. The calls are sequential, from a goroutine
// of the client. A panic is recovered and logged. If leases re-enter, fn gets the first lease.
func WithRevocationListener(fn func(*recipes.Lease)) Option {
	return func(cfg *config) error {
		if fn == nil {
			return errors.New("revocation listener: nil")
		}
		cfg.onRevoked = fn
		return nil
	}
}

// New returns a read-write lock on path, an absolute path below the client's namespace. The znodes of
// path are created when first needed. New sends nothing to the server.
//
// New refuses, with ErrInvalidPath, a path with a segment that has the name of a contender, such as
// lock-0000000000: the segment's znode would block a lock or an election on the path above.
func New(c *recipes.Client, path string, opts ...Option) (*InterProcessReadWriteLock, error) {
	read, err := recipe.New(c, path, queue.Queue{
		Recipe: "rwlock", Prefix: queue.ReadMarker, Markers: queue.ReadWriteMarkers, Rule: blockerOf, ShowOwn: true,
	})
	if err != nil {
		return nil, err
	}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, read.InvalidArgument("new", err)
	}
	read.Queue.Recipe, read.Queue.Data, read.Queue.Name, read.Queue.MaxHold = "read lock", cfg.id, cfg.name, cfg.maxHold
	l := &InterProcessReadWriteLock{}
	isChecked, callbacks := &atomic.Bool{}, read.Queue.Session.Callbacks()
	l.read = Lock{base: read, pair: l, isChecked: isChecked, onRevoked: cfg.onRevoked, callbacks: callbacks}
	l.write = l.read
	write := *read.Queue
	write.Recipe, write.Prefix, write.AlwaysList = "write lock", queue.WriteMarker, true
	l.write.base.Queue = &write
	return l, nil
}

// ReadLock returns the lock that any number of readers can hold together.
func (l *InterProcessReadWriteLock) ReadLock() *Lock { return &l.read }

// WriteLock returns the lock that a writer holds alone.
func (l *InterProcessReadWriteLock) WriteLock() *Lock { return &l.write }

// blockerOf is the rule of a read-write lock. A writer waits for the contender directly ahead, a reader
// for the nearest writer ahead. Contenders with the same number are a writer and the readers that its
// owner has acquired under the write lock; such contenders do not wait for each other.
func blockerOf(contenders []queue.Contender, own int) int {
	self := contenders[own]
	isWriter := self.HasMarker(queue.WriteMarker)
	for i := own - 1; i >= 0; i-- {
		if ahead := contenders[i]; (isWriter || ahead.HasMarker(queue.WriteMarker)) && !ahead.HasNumberOf(self) {
			return i
		}
	}
	return -1
}
