// Command crowd is a client with more contenders than a session may have. It is a process of its own, because the race detector of
// the tests does not take so many goroutines.
//
//	crowd SERVERS PATH WAITERS
//
// It acquires one lock in many goroutines at a time, and locks on other paths until the session is full. It prints the number
// of these locks, and waits for the end of its input. Finally it closes the client, and prints how many waiters Close ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

func main() {
	waiters, err := strconv.Atoi(os.Args[3])
	if err == nil {
		err = run(strings.Split(os.Args[1], ","), os.Args[2], waiters)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(servers []string, path string, waiters int) error {
	ctx := context.Background() // of a program
	client, err := recipes.Connect(ctx, servers, recipes.WithSessionTimeout(30*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	var closed atomic.Int32
	var crowd sync.WaitGroup
	lock, err := mutex.New(client, path+"/crowd")
	if err != nil {
		return err
	}
	if _, err := lock.Acquire(ctx); err != nil {
		return err
	}
	for range waiters {
		crowd.Go(func() { // ends with the client; joined below
			if _, err := lock.Acquire(ctx); errors.Is(err, recipes.ErrClosed) {
				closed.Add(1)
			}
		})
	}
	full, err := fill(ctx, client, path)
	if err != nil {
		return err
	}
	fmt.Println(full)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	crowd.Wait()
	fmt.Println(closed.Load())
	return nil
}

// fill acquires locks on other paths until the session is full, and returns their number.
func fill(ctx context.Context, client *recipes.Client, path string) (acquired int32, err error) {
	const atATime = 32
	var next, done atomic.Int32
	var fillers sync.WaitGroup
	failures := make([]error, atATime)
	for i := range failures {
		fillers.Go(func() { // ends when the session is full; joined below
			for failures[i] == nil {
				var lock *mutex.InterProcessMutex
				if lock, failures[i] = mutex.New(client, fmt.Sprintf("%s/%06d", path, next.Add(1))); failures[i] == nil {
					_, failures[i] = lock.Acquire(ctx)
				}
				if failures[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	fillers.Wait()
	for _, failure := range failures {
		if !errors.Is(failure, recipes.ErrSessionFull) {
			return 0, failure
		}
	}
	return done.Load(), nil
}
