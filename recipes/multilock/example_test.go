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

// newClient returns a client of a ZooKeeper in this process, and what closes both. A service has
// recipes.Connect and its own servers here.
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

// Move something from one account to another, with both locked. The paths are sorted, so a transfer in
// the other direction does not wait for this one while this one waits for it.
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
