package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newClient returns a client of a ZooKeeper in this process, and a function that closes both. A service would call
// recipes.Connect with its servers.
func newClient() (client *recipes.Client, stop func()) {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	client, err = recipes.Connect(context.Background(), []string{server.Addr()})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { _ = errors.Join(client.Close(), server.Close()) }
}

// Guard a critical section, and data in ZooKeeper with it.
func Example() {
	client, stop := newClient()
	defer stop()
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		log.Fatal(err)
	}

	var lease *recipes.Lease
	err = lock.Do(context.Background(), func(_ context.Context, l *recipes.Lease) error {
		lease = l
		_, err := client.Conn().Multi(l.Check(),
			&zk.CreateRequest{Path: "/report", Data: []byte("mine"), Acl: zk.WorldACL(zk.PermAll)})
		return err
	})
	fmt.Println("while held:", err)

	_, err = client.Conn().Multi(lease.Check(),
		&zk.SetDataRequest{Path: "/report", Data: []byte("too late"), Version: -1})
	fmt.Println("afterwards:", err)
	// Output:
	// while held: <nil>
	// afterwards: zk: node does not exist
}

// The context of a lease re-enters. Any other context is another contender.
func ExampleInterProcessMutex_Acquire() {
	client, stop := newClient()
	defer stop()
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	outer, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := lock.Acquire(outer.Context())
	fmt.Println("below:", err)
	_, err = lock.TryAcquire(ctx)
	fmt.Println("beside:", errors.Is(err, recipes.ErrNotAcquired))

	fmt.Println("released:", inner.Release(), outer.Release())
	_, err = lock.Acquire(outer.Context())
	fmt.Println("afterwards:", err)
	// Output:
	// below: <nil>
	// beside: true
	// released: <nil> <nil>
	// afterwards: mutex: acquire /locks/report: released
}

// A bound on the work: its context ends, and the lock is free when the work returns.
func ExampleWithMaxHold() {
	client, stop := newClient()
	defer stop()
	lock, err := mutex.New(client, "/locks/report", mutex.WithMaxHold(500*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}

	err = lock.Do(context.Background(), func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done() // a query that hangs until its context ends
		return ctx.Err()
	})
	fmt.Println("took too long:", errors.Is(err, recipes.ErrMaxHold))

	err = lock.Do(context.Background(), func(context.Context, *recipes.Lease) error { return nil })
	fmt.Println("the next one:", err)
	// Output:
	// took too long: true
	// the next one: <nil>
}

// Who holds the lock, and who waits for it.
func ExampleInterProcessMutex_Participants() {
	client, stop := newClient()
	defer stop()
	lock, err := mutex.New(client, "/locks/report", mutex.WithID("night shift"))
	if err != nil {
		log.Fatal(err)
	}

	err = lock.Do(context.Background(), func(ctx context.Context, lease *recipes.Lease) error {
		queue, err := lock.Participants(ctx)
		if err != nil {
			return err
		}
		for _, p := range queue {
			fmt.Println(p.ID, "leads:", p.Leader, "it is us:", p.Path == lease.Path())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// night shift leads: true it is us: true
}

// Wait for the lock for a moment, and work for as long as the work takes.
func ExampleInterProcessMutex_DoWithin() {
	client, stop := newClient()
	defer stop()
	lock, err := mutex.New(client, "/locks/report", mutex.WithID("night shift"))
	if err != nil {
		log.Fatal(err)
	}
	report := func(context.Context, *recipes.Lease) error {
		fmt.Println("reported")
		return nil
	}
	ctx := context.Background() // of the work

	holder, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = lock.DoWithin(ctx, time.Second, report)
	var wait *recipes.WaitError
	isBusy := errors.As(err, &wait)
	fmt.Println("nothing was done:", isBusy, "position:", wait.Position)

	if err := holder.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("free:", lock.DoWithin(ctx, time.Minute, report))
	// Output:
	// nothing was done: true position: 2
	// reported
	// free: <nil>
}
