package zktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// writeReport is the code under test. It writes three pages while it holds the lock, and passes to every page the
// context that ends when the lock is lost.
func writeReport(ctx context.Context, client *recipes.Client, write func(ctx context.Context, page int) error) error {
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
		for page := 1; page <= 3; page++ {
			if err := write(ctx, page); err != nil {
				return err
			}
		}
		return nil
	})
}

// A session is lost in the middle of a critical section. The holder is notified of the cause and stops, and the next
// contender gets the lock.
func Example() {
	server, err := zktest.Start() // in a test: zktest.NewServer(t)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	ctx := context.Background()
	connect := func() *recipes.Client {
		client, err := recipes.Connect(ctx, []string{server.Addr()})
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	day, night := connect(), connect()
	defer func() { _ = day.Close() }()
	defer func() { _ = night.Close() }()

	err = writeReport(ctx, day, func(ctx context.Context, page int) error {
		if page == 2 {
			server.Expire(day.Conn().SessionID())
			<-ctx.Done() // as a query or a request with this context would
			fmt.Println("day: stopped at page 2:", context.Cause(ctx))
			return context.Cause(ctx)
		}
		fmt.Println("day: page", page)
		return nil
	})
	fmt.Println("day: was told of the loss:", errors.Is(err, recipes.ErrSessionLost))

	err = writeReport(ctx, night, func(_ context.Context, page int) error {
		fmt.Println("night: page", page)
		return nil
	})
	fmt.Println("night: done:", err == nil)
	// Output:
	// day: page 1
	// day: stopped at page 2: session lost
	// day: was told of the loss: true
	// night: page 1
	// night: page 2
	// night: page 3
	// night: done: true
}
