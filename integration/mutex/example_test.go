package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// onServer runs fn with a client of a server that it starts.
func onServer(fn func(ctx context.Context, client *recipes.Client) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := ensemble.Start(ctx, ensemble.Config{})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = server.Close() }()
	client, err := recipes.Connect(ctx, server.Servers())
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = client.Close() }()
	if err := fn(ctx, client); err != nil {
		log.Panic(err)
	}
}

// Guard a critical section, and data in ZooKeeper with it.
func Example() {
	onServer(func(ctx context.Context, client *recipes.Client) error {
		lock, err := mutex.New(client, "/locks/report")
		if err != nil {
			return err
		}
		var lease *recipes.Lease
		err = lock.Do(ctx, func(_ context.Context, l *recipes.Lease) error {
			lease = l
			_, err := client.Conn().Multi(l.Check(), &zk.CreateRequest{Path: "/report", Data: []byte("mine"), Acl: zk.WorldACL(zk.PermAll)})
			return err
		})
		fmt.Println("while held:", err)
		_, err = client.Conn().Multi(lease.Check(), &zk.SetDataRequest{Path: "/report", Data: []byte("too late"), Version: -1})
		fmt.Println("afterwards:", err)
		return nil
	})
	// Output:
	// while held: <nil>
	// afterwards: zk: node does not exist
}

// The context of a lease re-enters. Any other context is another contender.
func Example_reentry() {
	onServer(func(ctx context.Context, client *recipes.Client) error {
		lock, err := mutex.New(client, "/locks/report")
		if err != nil {
			return err
		}
		outer, err := lock.Acquire(ctx)
		if err != nil {
			return err
		}
		inner, err := lock.Acquire(outer.Context())
		fmt.Println("below:", err)
		_, err = lock.TryAcquire(ctx)
		fmt.Println("beside:", errors.Is(err, recipes.ErrNotAcquired))
		fmt.Println(inner.Release(), outer.Release())
		_, err = lock.Acquire(outer.Context())
		fmt.Println("afterwards:", err)
		return nil
	})
	// Output:
	// below: <nil>
	// beside: true
	// <nil> <nil>
	// afterwards: mutex: acquire /locks/report: released
}

// Ask the holder for the lock.
func Example_revocation() {
	onServer(func(ctx context.Context, client *recipes.Client) error {
		lock, err := mutex.New(client, "/locks/report", mutex.WithID("night shift"))
		if err != nil {
			return err
		}
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return err
		}
		holders, err := lock.Participants(ctx)
		if err != nil {
			return err
		}
		fmt.Println("held by the", holders[0].ID)
		if err := revoke.New(client).AttemptRevoke(ctx, holders[0].Path); err != nil {
			return err
		}
		<-lease.Revoked()
		fmt.Println("still held:", lease.Context().Err() == nil)
		fmt.Println("released:", lease.Release())
		return nil
	})
	// Output:
	// held by the night shift
	// still held: true
	// released: <nil>
}
