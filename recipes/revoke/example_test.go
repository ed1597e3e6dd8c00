package revoke_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
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

// Ask the holder for the lock. The holder sees the request, and decides when to release the lock.
func Example() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	lock, err := mutex.New(client, "/locks/report", mutex.WithID("night shift"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// somewhere else, with another client:
	holders, err := lock.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held by the", holders[0].ID)
	if err := revoke.New(client).AttemptRevoke(ctx, holders[0].Path); err != nil {
		log.Fatal(err)
	}

	// the holder:
	<-lease.Revoked()
	fmt.Println("still held:", lease.Context().Err() == nil)
	fmt.Println("released:", lease.Release())
	// Output:
	// held by the night shift
	// still held: true
	// released: <nil>
}
