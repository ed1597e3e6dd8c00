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
var ErrUpgrade = errors.New("can't upgrade a read lock to the write lock")

// InterProcessReadWriteLock is a pair of locks on a path. Create it with [New]; it needs no closing.
type InterProcessReadWriteLock struct {
	read, write Lock
}

// Option configures an [InterProcessReadWriteLock] in New.
type Option func(*config) error

// config holds the values of the options.
type config struct {
	id        []byte // nil for the client's ID
	name      string
	maxHold   time.Duration // 0: none
	onRevoked func(*recipes.Lease)

	isReleasedInBackground bool
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

// WithMaxHold ends the context of a lease of either lock with ErrMaxHold once it has been held for d. Use it to bound holders
// that hang or forget to release. A re-entry does not extend the time.
//
// The end of the context asks the work to stop, as a loss does, and cannot make it stop. So the znode stays until Release, or
// for Do until the function returns, and no other contender gets the lock meanwhile. The log says so at Warn. Release deletes
// the znode, and returns nil once it is deleted. The error of Do matches ErrMaxHold. To let others continue while code that
// ignores its context may still run, delete the znode from outside, and have the guarded resource refuse lower tokens (see
// [recipes.Lease.FencingToken]).
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithBackgroundRelease makes Release, Do and DoWithin return as soon as the deletion of the znode is sent, so that a caller
// waits for one commit instead of two. Other clients may still find either lock held for the time of that commit. If a caller
// signals another client that the lock is free, the signal may be faster, and the TryAcquire of that client is refused.
//
// The context of the lease ends before, as always. An Acquire of the same client is executed after the deletion. Without a
// connection the call returns at once. The deletion is then sent in the background, and a deletion that fails is repeated and
// logged at Warn. Release does not return ErrNodeNotDeleted. Close and Shutdown of the client end with the znode deleted, but a
// process that exits without them may leave it until the session expires.
//
// The client counts the znode against its room until the deletion is answered: at the limit of a session, an acquisition right behind
// Release may fail as if the lock were still held.
func WithBackgroundRelease() Option {
	return func(cfg *config) error {
		cfg.isReleasedInBackground = true
		return nil
	}
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
// New refuses, with ErrInvalidPath, a path with a segment that has the name of a contender, such as lock-0000000000,
// because the segment's znode would block a lock or an election on the path above.
func New(c *recipes.Client, path string, opts ...Option) (*InterProcessReadWriteLock, error) {
	read, err := recipe.New(c, path, queue.Queue{
		Recipe: "rwlock", Prefix: queue.ReadMarker, Markers: queue.ReadWriteMarkers, Rule: queue.ReadWrite, ShowOwn: true,
	})
	if err != nil {
		return nil, err
	}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, read.InvalidArgument("new", err)
	}
	read.Queue.Recipe, read.Queue.Data, read.Queue.Name, read.Queue.MaxHold = "read-lock", cfg.id, cfg.name, cfg.maxHold
	read.Queue.NoWait = cfg.isReleasedInBackground
	l := &InterProcessReadWriteLock{}
	isChecked, callbacks := &atomic.Bool{}, read.Queue.Session.Callbacks()
	l.read = Lock{base: read, pair: l, isChecked: isChecked, onRevoked: cfg.onRevoked, callbacks: callbacks}
	l.write = l.read
	write := *read.Queue
	write.Recipe, write.Prefix, write.AlwaysList = "write-lock", queue.WriteMarker, true
	l.write.base.Queue = &write
	return l, nil
}

// ReadLock returns the lock that any number of readers can hold together.
func (l *InterProcessReadWriteLock) ReadLock() *Lock { return &l.read }

// WriteLock returns the lock that a writer holds alone.
func (l *InterProcessReadWriteLock) WriteLock() *Lock { return &l.write }
