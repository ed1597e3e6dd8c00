package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A lock around a purchase. The work gets a context that ends when the lock is lost.
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
	defer func() { _ = errors.Join(client.Close(), server.Close()) }()

	lock, err := mutex.New(client, "/shop/articles/42")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.DoWithin(ctx, 5*time.Second, func(ctx context.Context, lease *recipes.Lease) error {
		fmt.Println("bought, with a fencing token:", lease.FencingToken() > 0)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// bought, with a fencing token: true
	// <nil>
}
