package zkcompat

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Lock is a contender for the lock on a path, with the methods of zk.Lock. Create a Lock with [NewLock]; it needs no closing.
type Lock struct {
	client *recipes.Client
	path   string
	acl    []zk.ACL

	mu     sync.Mutex     // protects the fields below
	isBusy bool           // a Lock or LockWithData waits
	lease  *recipes.Lease // nil if not locked
	lost   chan struct{}  // see Lost; nil before the first lock
}

// NewLock returns a lock on path, an absolute path below the client's namespace. acl is the ACL of the znodes that the lock creates,
// parents included; an empty acl means that of the client. NewLock sends nothing to the server. An invalid argument is an error of
// Lock.
func NewLock(c *recipes.Client, path string, acl []zk.ACL) *Lock {
	return &Lock{client: c, path: path, acl: slices.Clone(acl)}
}

// Lock is [Lock.LockWithData] with empty data.
func (l *Lock) Lock() error { return l.LockWithData(nil) }

// LockWithData blocks until the lock is held. The znode has the data, of at most 64 KiB. The error matches zk.ErrDeadlock if this
// Lock is held, or if another goroutine waits for it. Otherwise it is an error of Acquire of a mutex, such as ErrClosed or
// zk.ErrNoAuth. A Lock that was lost can be locked again, with or without an Unlock before.
func (l *Lock) LockWithData(data []byte) error {
	if err := l.begin(); err != nil {
		return err
	}
	lease, err := l.acquire(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isBusy = false
	if err != nil {
		return err
	}
	lost := make(chan struct{})
	l.lease, l.lost = lease, lost
	context.AfterFunc(lease.Context(), func() {
		if !errors.Is(context.Cause(lease.Context()), recipes.ErrReleased) {
			close(lost)
		}
	})
	return nil
}

// begin reserves the Lock for a call of LockWithData.
func (l *Lock) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isBusy || l.lease != nil && l.lease.Context().Err() == nil {
		return l.opError("lock", zk.ErrDeadlock)
	}
	l.isBusy, l.lease = true, nil
	return nil
}

func (l *Lock) acquire(data []byte) (*recipes.Lease, error) {
	m, err := mutex.New(l.client, l.path, mutex.WithID(string(data)))
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // the methods of zk.Lock have none, and the end of the client ends the wait
	if len(l.acl) > 0 {
		ctx = session.WithACL(ctx, l.acl)
	}
	return m.Acquire(ctx)
}

// Unlock releases the lock, and returns nil once the znode is deleted. The error matches zk.ErrNotLocked if the Lock is not
// held. If the lock was lost, the first Unlock returns the loss, such as ErrSessionLost. Other errors are those of
// [recipes.Lease.Release]. After any error, the Lock can be locked again.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		return l.opError("unlock", zk.ErrNotLocked)
	}
	return lease.Release()
}

// Lost returns a channel that is closed when the lock that is held is lost, or when the lock that was held last was lost. Unlock does not
// close it. Call Lost after each Lock: each has a channel of its own.
func (l *Lock) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *Lock) opError(op string, err error) error {
	return &recipes.OpError{Op: "zkcompat: " + op, Path: l.path, Err: err}
}
