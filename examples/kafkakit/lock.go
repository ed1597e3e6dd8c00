// Package kafkakit has the lock of kafka-kit, github.com/DataDog/kafka-kit/v4/cluster/zookeeper, on this library. It shows
// what remains of a lock of 530 lines. The tests of the package check what the tests of kafka-kit check, and three defects
// that it had.
//
// Programs that have the old lock wait for the new one, and the new one for the old.
package kafkakit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// The errors that programs compare with ==. Other errors of Lock and Unlock are those of package mutex.
var (
	ErrAlreadyOwnLock  = errors.New("the owner already has the lock")
	ErrLockingTimedOut = errors.New("the context ended before the lock was free")
	ErrNotLockOwner    = errors.New("the caller does not have the lock, or lost it")
)

// ZooKeeperLockConfig is the configuration of kafka-kit.
type ZooKeeperLockConfig struct {
	Address  string // of a server
	Path     string // of the lock
	TTL      int    // milliseconds for which a caller may have the lock; 0: no limit
	OwnerKey string // key of the context's value that says who the caller is
}

// ZooKeeperLock is a lock for many callers of one process. The caller is the owner in the context or, if there is none, the
// context itself.
type ZooKeeperLock struct {
	client *recipes.Client
	config ZooKeeperLockConfig

	mu     sync.Mutex
	leases map[any]*recipes.Lease // by caller
}

// NewZooKeeperLock connects to ZooKeeper. Close the lock at the end.
func NewZooKeeperLock(config ZooKeeperLockConfig) (*ZooKeeperLock, error) {
	client, err := recipes.Connect(context.Background(), []string{config.Address}, recipes.WithSessionTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	return NewZooKeeperLockWithClient(config, client)
}

// NewZooKeeperLockWithClient returns a lock on the session of client.
func NewZooKeeperLockWithClient(config ZooKeeperLockConfig, client *recipes.Client) (*ZooKeeperLock, error) {
	config.Path = "/" + strings.Trim(config.Path, "/")
	return &ZooKeeperLock{client: client, config: config, leases: map[any]*recipes.Lease{}}, nil
}

// Close ends the session, and with it a lock that is held.
func (l *ZooKeeperLock) Close() error { return l.client.Close() }

// Lock waits for the lock until ctx ends.
func (l *ZooKeeperLock) Lock(ctx context.Context) error {
	owner, caller := l.caller(ctx)
	if owner != nil && l.lease(caller) != nil {
		return ErrAlreadyOwnLock
	}
	options := []mutex.Option{mutex.WithID(metadata(owner))}
	if ttl := time.Duration(l.config.TTL) * time.Millisecond; ttl > 0 {
		options = append(options, mutex.WithMaxHold(ttl)) // counts from the grant
	}
	m, err := mutex.New(l.client, l.config.Path, options...)
	if err != nil {
		return err
	}
	lease, err := m.Acquire(ctx)
	if errors.Is(err, recipes.ErrNotAcquired) {
		return ErrLockingTimedOut
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[caller] = lease
	context.AfterFunc(lease.Context(), func() { _ = l.release(caller, lease) }) //nolint:contextcheck // after the TTL, or a loss
	return nil
}

// Lost returns a channel that is closed when the caller no longer has the lock. After a loss it is closed before another
// caller can get the lock.
func (l *ZooKeeperLock) Lost(ctx context.Context) <-chan struct{} {
	_, caller := l.caller(ctx)
	if lease := l.lease(caller); lease != nil {
		return lease.Context().Done()
	}
	lost := make(chan struct{})
	close(lost)
	return lost
}

// Unlock releases the lock of the caller, and of no other. It works after the end of ctx, too.
func (l *ZooKeeperLock) Unlock(ctx context.Context) error {
	_, caller := l.caller(ctx)
	lease := l.lease(caller)
	if lease == nil {
		return ErrNotLockOwner
	}
	return l.release(caller, lease)
}

// UnlockLogError logs the error of Unlock.
func (l *ZooKeeperLock) UnlockLogError(ctx context.Context) {
	if err := l.Unlock(ctx); err != nil {
		log.Println(err)
	}
}

// Owner returns the owner that has the lock in this process.
func (l *ZooKeeperLock) Owner() any {
	l.mu.Lock()
	defer l.mu.Unlock()
	for caller, lease := range l.leases {
		if _, anonymous := caller.(context.Context); !anonymous && lease.Context().Err() == nil {
			return caller
		}
	}
	return nil
}

func (l *ZooKeeperLock) caller(ctx context.Context) (owner, caller any) {
	if owner := ctx.Value(l.config.OwnerKey); owner != nil {
		return owner, owner
	}
	return nil, ctx
}

// lease returns the lease of caller, or nil.
func (l *ZooKeeperLock) lease(caller any) *recipes.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.leases[caller]; lease != nil && lease.Context().Err() == nil {
		return lease
	}
	return nil
}

func (l *ZooKeeperLock) release(caller any, lease *recipes.Lease) error {
	l.mu.Lock()
	if l.leases[caller] == lease {
		delete(l.leases, caller)
	}
	l.mu.Unlock()
	return lease.Release()
}

// metadata is the data of the znode, which an old program behind it parses. That program deletes the znode after the
// deadline, so the deadline is far: a new program keeps its TTL itself.
func metadata(owner any) string {
	data, _ := json.Marshal(map[string]any{ // marshals
		"timestamp": time.Now(), "ttl_deadline": time.Now().AddDate(100, 0, 0), "owner_id": fmt.Sprint(owner),
	})
	return string(data)
}
