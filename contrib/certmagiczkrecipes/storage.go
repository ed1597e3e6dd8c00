package certmagiczkrecipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Storage is a certmagic.Storage whose locks are in ZooKeeper. Create a Storage with [New]; it needs no closing.
type Storage struct {
	certmagic.Storage // for all but the locks

	client *recipes.Client
	path   string
	opts   []mutex.Option

	mu    sync.Mutex
	holds map[string]*hold // by name, of the one caller that holds or awaits it. Guarded by mu
}

// hold is the use of a name by one caller of this process.
type hold struct {
	lock  *mutex.InterProcessMutex
	lease *recipes.Lease // nil until the lock is acquired. Guarded by mu of the storage
	over  chan struct{}  // closed when another caller may use the name
}

// New returns storage with locks below path, an absolute path below the client's namespace. The options are those of each lock,
// such as mutex.WithName. New sends nothing to the server.
func New(c *recipes.Client, path string, storage certmagic.Storage, opts ...mutex.Option) (*Storage, error) {
	if storage == nil {
		return nil, fmt.Errorf("certmagiczkrecipes: %w: nil storage", recipes.ErrInvalidArgument)
	}
	if _, err := mutex.New(c, path, opts...); err != nil {
		return nil, err
	}
	return &Storage{Storage: storage, client: c, path: path, opts: opts, holds: map[string]*hold{}}, nil
}

// Lock acquires the lock of a name, which may be any text. ctx bounds the wait. If it ends first, the error is a
// *recipes.WaitError. Other errors are those of InterProcessMutex.Acquire.
func (s *Storage) Lock(ctx context.Context, name string) error {
	start := time.Now()
	for {
		h, busy, err := s.reserve(name)
		switch {
		case err != nil:
			return err
		case busy == nil:
			lease, err := h.lock.Acquire(ctx)
			return s.setLease(name, h, lease, err)
		}
		select {
		case <-busy:
		case <-ctx.Done():
			ended := fmt.Errorf("%w: another caller in this process has the lock: %w", ctx.Err(), context.Cause(ctx))
			return s.opError("lock", name, &recipes.WaitError{Waited: time.Since(start), Err: ended})
		}
	}
}

// TryLock acquires the lock of a name unless another caller, on any host, holds or awaits it: then it returns false.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	h, busy, err := s.reserve(name)
	if err != nil || busy != nil {
		return false, err
	}
	lease, err := h.lock.TryAcquire(ctx)
	err = s.setLease(name, h, lease, err)
	if errors.Is(err, recipes.ErrNotAcquired) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// reserve makes the caller the only one in this process to use a name, or else returns a channel that is closed when the name is free.
func (s *Storage) reserve(name string) (h *hold, busy <-chan struct{}, err error) {
	lock, err := mutex.New(s.client, s.lockPath(name), s.opts...)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.holds[name]; other != nil {
		return nil, other.over, nil
	}
	h = &hold{lock: lock, over: make(chan struct{})}
	s.holds[name] = h
	return h, nil, nil
}

// setLease records the result of an acquisition. After an error the name is free.
func (s *Storage) setLease(name string, h *hold, lease *recipes.Lease, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.freeLocked(name, h)
		return err
	}
	h.lease = lease
	return nil
}

func (s *Storage) freeLocked(name string, h *hold) {
	delete(s.holds, name)
	close(h.over)
}

// RenewLockLease returns nil at once while the lock of a name is held: its session keeps it for any duration. If the lock was
// lost, RenewLockLease acquires it again, as Lock does. Certmagic calls it before each attempt of an operation with retries, and
// then reads the storage again, so that nothing is obtained that another host has obtained meanwhile.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	h, held := s.holds[name]
	var lost *recipes.Lease
	if held {
		lost = h.lease
	}
	s.mu.Unlock()
	switch {
	case lost == nil:
		return s.opError("renew", name, recipes.ErrNotHeld)
	case time.Now().Before(lost.TrustedUntil()):
		return nil
	}
	lease, err := h.lock.Acquire(ctx)
	if err != nil {
		return err // the lost lease stays, for Unlock
	}
	if !s.replaceLease(h, lost, lease) {
		return errors.Join(s.opError("renew", name, recipes.ErrNotHeld), lease.Release())
	}
	return nil
}

// replaceLease records a new lease in place of a lost one, unless Unlock was called meanwhile.
func (s *Storage) replaceLease(h *hold, lost, lease *recipes.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != lost {
		return false
	}
	h.lease = lease
	return true
}

// Unlock releases the lock of a name. It returns within the operation timeout of the client, whatever ctx. After an error, too,
// the name can be locked again in this process. The error is that of Lease.Release: the loss, such as ErrSessionLost, if the lock
// was lost before, or ErrNodeNotDeleted while the deletion is repeated in the background. For a name that is not locked,
// the error matches ErrNotHeld.
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	h := s.holds[name]
	if h == nil || h.lease == nil {
		s.mu.Unlock()
		return s.opError("unlock", name, recipes.ErrNotHeld)
	}
	lease := h.lease
	h.lease = nil // from here on, another Unlock fails
	s.mu.Unlock()

	err := lease.Release()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeLocked(name, h)
	return err
}

func (s *Storage) lockPath(name string) string { return s.path + "/" + recipes.Segment(name) }

func (s *Storage) opError(op, name string, err error) error {
	return &recipes.OpError{Op: "certmagic: " + op, Path: s.lockPath(name), Err: err}
}
