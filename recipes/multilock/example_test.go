package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newClient returns a client of an in-process ZooKeeper, and a function that closes both. A service
// calls recipes.Connect with its own servers instead.
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

// Move something from one account to another, with both accounts locked. The paths are sorted, so
// this transfer and a transfer in the opposite direction can't deadlock.
func Example() {
	client, stop := newClient()
	defer stop()
	accounts, err := multilock.NewMutexes(client, []string{"/accounts/b", "/accounts/a"})
	if err != nil {
		log.Fatal(err)
	}

	err = accounts.Do(context.Background(), func(ctx context.Context, lease *multilock.Lease) error {
		fmt.Println("locks held:", len(lease.Leases()))
		single, err := mutex.New(client, "/accounts/a")
		if err != nil {
			return err
		}
		_, err = single.TryAcquire(context.Background())
		fmt.Println("another caller gets one:", err == nil)
		inner, err := single.Acquire(ctx)
		if err != nil {
			return err
		}
		fmt.Println("the same call re-enters one")
		return inner.Release()
	})
	fmt.Println("transfer:", err)
	// Output:
	// locks held: 2
	// another caller gets one: false
	// the same call re-enters one
	// transfer: <nil>
}

// With a wait of 0, DoWithin works only if all locks are free.
func ExampleInterProcessMultiLock_DoWithin() {
	client, stop := newClient()
	defer stop()
	accounts, err := multilock.NewMutexes(client, []string{"/accounts/a", "/accounts/b"})
	if err != nil {
		log.Fatal(err)
	}
	transfer := func(context.Context, *multilock.Lease) error {
		fmt.Println("transferred")
		return nil
	}
	fmt.Println("free:", accounts.DoWithin(context.Background(), 0, transfer))
	err = accounts.Do(context.Background(), func(context.Context, *multilock.Lease) error {
		return accounts.DoWithin(context.Background(), 0, transfer)
	})
	fmt.Println("busy:", errors.Is(err, recipes.ErrNotAcquired))
	// Output:
	// transferred
	// free: <nil>
	// busy: true
}
