package snippets

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zkcompat"
)

// importConfig imports a configuration under the lock.
func importConfig(ctx context.Context, servers []string, timeout time.Duration, work func(lost <-chan struct{}, conn *zk.Conn) error) error {
	client, err := recipes.Connect(ctx, servers, recipes.WithSessionTimeout(timeout)) // was: zk.Connect(servers, timeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()                                      // was: conn.Close()
	lock := zkcompat.NewLock(client, "/locks/import", zk.WorldACL(zk.PermAll)) // was: zk.NewLock(conn, …)
	if err := lock.Lock(); err != nil {
		return err
	}
	err = work(lock.Lost(), client.Conn()) // new: stop when the channel is closed
	return errors.Join(err, lock.Unlock())
}

// importUnderMutex does the same with a mutex.
func importUnderMutex(ctx context.Context, client *recipes.Client, work func(ctx context.Context, token int64) error) error {
	lock, err := mutex.New(client, "/locks/import") // the same path as zk.NewLock
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
		return work(ctx, lease.FencingToken()) // ctx ends when the lock is lost
	})
}
