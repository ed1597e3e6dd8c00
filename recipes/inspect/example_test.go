package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
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

// Show the holders of locks, from a program that uses none of these locks.
func ExampleWalk() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	for _, path := range []string{"/locks/goods/1001", "/locks/report"} {
		lock, err := mutex.New(client, path, mutex.WithID("night shift"))
		if err != nil {
			log.Fatal(err)
		}
		lease, err := lock.Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = lease.Release() }()
	}

	for queue, err := range inspect.Walk(ctx, client, "/locks") {
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range queue.Contenders {
			fmt.Println(queue.Path, queue.Kind, c.Position, c.ID, "holds:", c.Holds)
		}
	}
	// Output:
	// /locks/report mutex 1 night shift holds: true
	// /locks/goods/1001 mutex 1 night shift holds: true
}

// Show who holds one lock.
func ExampleRead() {
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
	queue, err := inspect.Read(ctx, client, "/locks/report")
	if err != nil {
		log.Fatal(err)
	}
	holder := queue.Contenders[0]
	fmt.Println(holder.ID, "token is the lease's:", holder.Token == lease.FencingToken())
	fmt.Println(lease.Release())
	// Output:
	// night shift token is the lease's: true
	// <nil>
}
