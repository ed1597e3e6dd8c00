package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
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

// Readers share the lock; a writer holds it alone.
func Example() {
	client, stop := newClient()
	defer stop()
	prices, err := rwlock.New(client, "/locks/prices")
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	first, err := prices.ReadLock().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := prices.ReadLock().Acquire(ctx)
	fmt.Println("another reader:", err)
	_, err = prices.WriteLock().TryAcquire(ctx)
	fmt.Println("a writer beside them:", errors.Is(err, recipes.ErrNotAcquired))
	_, err = prices.WriteLock().TryAcquire(first.Context())
	fmt.Println("a reader that wants to write:", errors.Is(err, rwlock.ErrUpgrade))

	fmt.Println("released:", first.Release(), second.Release())
	err = prices.WriteLock().Do(ctx, func(context.Context, *recipes.Lease) error { return nil })
	fmt.Println("a writer alone:", err)
	// Output:
	// another reader: <nil>
	// a writer beside them: true
	// a reader that wants to write: true
	// released: <nil> <nil>
	// a writer alone: <nil>
}

// Write, and then read the result, without a gap in which another writer could get the lock.
func ExampleLock_Acquire_downgrade() {
	client, stop := newClient()
	defer stop()
	prices, err := rwlock.New(client, "/locks/prices")
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	writing, err := prices.WriteLock().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	reading, err := prices.ReadLock().Acquire(writing.Context())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", writing.Release())
	_, err = prices.WriteLock().TryAcquire(ctx)
	fmt.Println("another writer waits:", errors.Is(err, recipes.ErrNotAcquired))
	fmt.Println("the same token:", reading.FencingToken() == writing.FencingToken())
	fmt.Println("released:", reading.Release())
	// Output:
	// released: <nil>
	// another writer waits: true
	// the same token: true
	// released: <nil>
}

// Wait briefly for the writers, and then read for as long as necessary.
func ExampleLock_DoWithin() {
	client, stop := newClient()
	defer stop()
	pair, err := rwlock.New(client, "/catalog")
	if err != nil {
		log.Fatal(err)
	}
	read := func(context.Context, *recipes.Lease) error {
		fmt.Println("read")
		return nil
	}
	ctx := context.Background()
	err = pair.WriteLock().Do(ctx, func(context.Context, *recipes.Lease) error {
		return pair.ReadLock().DoWithin(ctx, 20*time.Millisecond, read)
	})
	var target *recipes.WaitError
	isBusy := errors.As(err, &target)
	fmt.Println("nothing was read:", isBusy)
	fmt.Println("free:", pair.ReadLock().DoWithin(ctx, time.Minute, read))
	// Output:
	// nothing was read: true
	// read
	// free: <nil>
}
