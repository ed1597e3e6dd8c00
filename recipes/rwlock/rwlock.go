package rwlock

import (
	"errors"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// ErrUpgrade is returned by Acquire, TryAcquire and Do of the write lock, at once, when the context
// carries a hold of the read lock that stands, and none of the write lock. Two readers that waited for
// the write lock would wait for each other. Release the read lock first.
var ErrUpgrade = errors.New("a holder of the read lock can't get the write lock")

// InterProcessReadWriteLock is a pair of locks on a path. Create it with [New]; it needs no closing.
type InterProcessReadWriteLock struct {
	read, write Lock
}

// Option configures an [InterProcessReadWriteLock], in New alone.
type Option func(*config) error

// config is what the options set.
type config struct {
	id        []byte // nil: the client's
	name      string
	onRevoked func(*recipes.Lease)
}

// WithID sets what Participants shows for the contenders of both locks; the default is that of
// recipes.WithID. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the lock, of at most 128 bytes, which is the same in all processes. It is the
// Name in the hooks of [recipes.Trace], for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithRevocationListener sets a function that is called when a peer asks for one of the two locks, at
// most once a hold. The lock stays held until the lease is released. Calls come one at a time, from a
// goroutine of the client. A panic is recovered and logged. With re-entrant leases fn gets the first
// of them.
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
// path are created when first needed. Nothing is sent to the server here.
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
	read.Queue.Recipe, read.Queue.Data, read.Queue.Name = "read lock", cfg.id, cfg.name
	l := &InterProcessReadWriteLock{}
	isChecked, callbacks := &atomic.Bool{}, read.Queue.Session.Callbacks()
	l.read = Lock{base: read, pair: l, isChecked: isChecked, onRevoked: cfg.onRevoked, callbacks: callbacks}
	l.write = l.read
	write := *read.Queue
	write.Recipe, write.Prefix, write.AlwaysList = "write lock", queue.WriteMarker, true
	l.write.base.Queue = &write
	return l, nil
}

// ReadLock returns the lock that any number of readers hold together.
func (l *InterProcessReadWriteLock) ReadLock() *Lock { return &l.read }

// WriteLock returns the lock that one writer holds alone.
func (l *InterProcessReadWriteLock) WriteLock() *Lock { return &l.write }

// blockerOf is the rule of a read-write lock. A writer waits for the contender directly ahead, a
// reader for the nearest writer ahead. Contenders with the same number are a writer and the readers
// that its owner has acquired under it. They do not wait for each other.
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
