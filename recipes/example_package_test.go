package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// One client per process, a lock, and work that ends when the lock is lost.
func Example() {
	server, err := zktest.Start() // in the test process; a service names its ensemble
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	client, err := recipes.Connect(ctx, server.Addrs())
	if err != nil {
		log.Fatal(err)
	}
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
		fmt.Println("locked, with a fencing token:", lease.FencingToken() > 0)
		return ctx.Err() // ctx ends when the lock is lost
	})
	fmt.Println(errors.Join(err, client.Close(), server.Close()))
	// Output:
	// locked, with a fencing token: true
	// <nil>
}
