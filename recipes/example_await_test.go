package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A startup probe fails until the ensemble is there.
func ExampleClient_Await() {
	server, err := zktest.Start()
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	server.Stop()

	client, err := recipes.Open([]string{server.Addr()}, recipes.WithDialer(server.Dialer()))
	if err != nil {
		panic(err) // an invalid argument
	}
	defer func() { _ = client.Close() }()
	probe := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return client.Await(ctx)
	}
	fmt.Println(errors.Is(probe(10*time.Millisecond), context.DeadlineExceeded))

	if err := server.Restart(); err != nil { // the ensemble is up
		panic(err)
	}
	fmt.Println(probe(time.Minute))
	// Output:
	// true
	// <nil>
}

// A handler starts work that outlives it. With the handler's own context, the work would re-enter the handler's lock, and keep the lock
// when Do has returned.
func ExampleWithoutHold() {
	server, err := zktest.Start()
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	ctx := context.Background()
	client, err := recipes.Connect(ctx, []string{server.Addr()})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	m, err := mutex.New(client, "/locks/index")
	if err != nil {
		panic(err)
	}

	done := make(chan error)
	err = m.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
		background := recipes.WithoutHold(context.WithoutCancel(ctx))
		go func() {
			done <- m.Do(background, func(context.Context, *recipes.Lease) error {
				fmt.Println("background work")
				return nil
			})
		}()
		fmt.Println("handler")
		return nil
	})
	fmt.Println(err, <-done)
	// Output:
	// handler
	// background work
	// <nil> <nil>
}
