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

// newClient returns a client of a ZooKeeper in this process, and what closes both. A
// service has recipes.Connect and its own servers here.
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

// Ask the holder for the lock. The holder sees the request, and decides when it releases the lock.
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

	// Somewhere else, with a client of its own:
	holders, err := lock.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held by the", holders[0].ID)
	if err := revoke.New(client).AttemptRevoke(ctx, holders[0].Path); err != nil {
		log.Fatal(err)
	}

	// The holder:
	<-lease.Revoked()
	fmt.Println("still held:", lease.Context().Err() == nil)
	fmt.Println("released:", lease.Release())
	// Output:
	// held by the night shift
	// still held: true
	// released: <nil>
}
