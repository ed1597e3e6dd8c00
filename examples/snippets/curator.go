package snippets

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// build is CuratorFrameworkFactory.builder() … build(), start() and blockUntilConnected().
func build(ctx context.Context, servers string) (*recipes.Client, error) {
	return recipes.Connect(ctx, []string{servers}, // connectString, a chroot included
		recipes.WithNamespace("shop"),                                                              // namespace
		recipes.WithSessionTimeout(60*time.Second),                                                 // sessionTimeoutMs: Curator's default; 30 s here
		recipes.WithAuth("digest", []byte("shop:secret")),                                          // authorization
		recipes.WithACL(zk.DigestACL(zk.PermAll, "shop", "secret")...),                             // aclProvider: one ACL for all znodes
		recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: time.Second, MaxAttempts: 4}), // ExponentialBackoffRetry(1000, 3)
		recipes.WithErrorPolicy(recipes.StandardErrorPolicy),                                       // connectionStateErrorPolicy: Curator's default
	)
}

// watchStates is a ConnectionStateListener. Only services with state of their own need one: leases end by themselves.
func watchStates(client *recipes.Client) (stop func()) {
	states, stop := client.Subscribe()
	go func() { // ends with stop, or with the client
		for state := range states { // the present state first
			switch state {
			case recipes.Suspended: // SUSPENDED: disconnected, the session may be alive
			case recipes.Reconnected: // RECONNECTED
			case recipes.Lost: // LOST: all leases are already over
				slog.Warn("session lost")
			}
		}
	}()
	return stop
}

var errBusy = errors.New("busy")

// acquireWithin is acquire(5, TimeUnit.SECONDS), work and release().
func acquireWithin(ctx context.Context, lock *mutex.InterProcessMutex, work func(context.Context) error) (err error) {
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease, err := lock.Acquire(waiting) // bounds the wait alone
	var wait *recipes.WaitError
	if errors.As(err, &wait) {
		return errBusy // acquire returned false
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	return work(lease.Context()) // ends with the lease alone, not with ctx
}

// isAcquired is isAcquiredInThisProcess(), asked of the lease: true until the lease is released or lost.
func isAcquired(lease *recipes.Lease) bool {
	return lease.Context().Err() == nil && time.Now().Before(lease.TrustedUntil())
}

// revocable is makeRevocable(listener): the work sees the request, and may finish first.
func revocable(ctx context.Context, lock *mutex.InterProcessMutex, next func(context.Context) (more bool)) error {
	return lock.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
		for next(ctx) {
			select {
			case <-lease.Revoked(): // a peer asks for the lock; Do releases it
				return nil
			case <-ctx.Done():
				return ctx.Err()
			default:
			}
		}
		return nil
	})
}

// downgrade acquires the read lock under the write lock, as in Java.
func downgrade(ctx context.Context, lock *rwlock.InterProcessReadWriteLock) (*recipes.Lease, error) {
	writing, err := lock.WriteLock().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	reading, err := lock.ReadLock().Acquire(writing.Context()) // the writer's context, or the reader waits for the writer
	return reading, errors.Join(err, writing.Release())
}

// permits is InterProcessSemaphoreV2.acquire(2) and returnAll.
func permits(ctx context.Context, client *recipes.Client, work func() error) error {
	s, err := semaphore.New(client, "/limits/exports", 3) // maxLeases, the same in all processes
	if err != nil {
		return err
	}
	leases, err := s.AcquireN(ctx, 2)
	if err != nil {
		return err
	}
	err = work()
	for _, lease := range leases {
		err = errors.Join(err, lease.Release())
	}
	return err
}

// both holds two locks. Curator acquires them in the order given: give Java the sorted order, too.
func both(ctx context.Context, client *recipes.Client, work func(context.Context, *multilock.Lease) error) error {
	locks, err := multilock.NewMutexes(client, []string{"/locks/b", "/locks/a"}) // acquires /locks/a first
	if err != nil {
		return err
	}
	return locks.Do(ctx, work)
}

// start is new LeaderLatch(client, path, id, CloseMode.NOTIFY_LEADER), addListener and start().
func start(client *recipes.Client, work func(context.Context)) (*latch.LeaderLatch, error) {
	l, err := latch.New(client, "/services/billing", latch.WithID("billing-7"), latch.WithCloseMode(latch.NotifyLeader),
		latch.WithListener(latch.Listener{
			IsLeader:  func(term *recipes.Lease) { work(term.Context()) }, // may run for the whole term
			NotLeader: func() { slog.Info("no longer the leader") },
		}))
	if err != nil {
		return nil, err
	}
	return l, l.Start()
}
