package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
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

// Limit the number of workers to three, on all machines together.
func Example() {
	client, stop := newClient()
	defer stop()
	workers, err := semaphore.New(client, "/permits/import", 3)
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	two, err := workers.AcquireN(ctx, 2)
	fmt.Println("permits:", len(two), err)
	_, err = workers.TryAcquireN(ctx, 2)
	fmt.Println("two more:", errors.Is(err, recipes.ErrNotAcquired))
	err = workers.Do(ctx, func(context.Context, *recipes.Lease) error { return nil })
	fmt.Println("one more:", err)
	fmt.Println("released:", two[0].Release(), two[1].Release())
	// Output:
	// permits: 2 <nil>
	// two more: true
	// one more: <nil>
	// released: <nil> <nil>
}

// Share one limit, and change it while workers are running.
func ExampleWithSharedLimit() {
	client, stop := newClient()
	defer stop()
	workers, err := semaphore.New(client, "/permits/import", 1, semaphore.WithSharedLimit("/limits/import"))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	one, err := workers.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = workers.TryAcquire(ctx)
	fmt.Println("another:", errors.Is(err, recipes.ErrNotAcquired))
	fmt.Println("a higher limit:", semaphore.SetSharedLimit(ctx, client, "/limits/import", 2))
	other, err := workers.TryAcquire(ctx)
	fmt.Println("another:", err)
	fmt.Println("released:", one.Release(), other.Release())
	// Output:
	// another: true
	// a higher limit: <nil>
	// another: <nil>
	// released: <nil> <nil>
}

// Acquire a lock in one function and release it in another.
func ExampleInterProcessSemaphoreMutex() {
	client, stop := newClient()
	defer stop()
	lock, err := semaphore.NewMutex(client, "/locks/import")
	if err != nil {
		log.Fatal(err)
	}

	lease, err := lock.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.TryAcquire(lease.Context())
	fmt.Println("it never re-enters:", errors.Is(err, recipes.ErrNotAcquired))
	released := make(chan error)
	go func() { released <- lease.Release() }()
	fmt.Println("released elsewhere:", <-released)
	// Output:
	// it never re-enters: true
	// released elsewhere: <nil>
}

// Wait briefly for a printer, and then print for as long as necessary.
func ExampleInterProcessSemaphore_DoWithin() {
	client, stop := newClient()
	defer stop()
	printers, err := semaphore.New(client, "/printers", 1)
	if err != nil {
		log.Fatal(err)
	}
	printOne := func(context.Context, *recipes.Lease) error {
		fmt.Println("printed")
		return nil
	}
	ctx := context.Background()
	err = printers.Do(ctx, func(context.Context, *recipes.Lease) error {
		return printers.DoWithin(ctx, 20*time.Millisecond, printOne)
	})
	var target *recipes.WaitError
	isBusy := errors.As(err, &target)
	fmt.Println("nothing was printed:", isBusy)
	fmt.Println("free:", printers.DoWithin(ctx, time.Minute, printOne))
	// Output:
	// nothing was printed: true
	// printed
	// free: <nil>
}
