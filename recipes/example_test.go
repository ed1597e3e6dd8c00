package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The error of a recipe names the operation and the path, and unwraps to the cause.
func ExampleOpError() {
	var err error = &recipes.OpError{Op: "mutex: try acquire", Path: "/locks/stock/1", Err: recipes.ErrNotAcquired}

	if errors.Is(err, recipes.ErrNotAcquired) {
		fmt.Println("somebody else has it")
	}
	var op *recipes.OpError
	if errors.As(err, &op) {
		fmt.Println(op.Path)
	}
	fmt.Println(err)
	// Output:
	// somebody else has it
	// /locks/stock/1
	// mutex: try acquire /locks/stock/1: held by another
}

// The connection is cut, then the session ends. The client reconnects by itself, the second time with a new session.
func ExampleClient_Subscribe() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := recipes.Connect(context.Background(), []string{server.Addr()})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	states, stop := client.Subscribe()
	defer stop()
	fmt.Println(<-states)
	server.Disconnect()
	fmt.Println(<-states, <-states)
	server.Expire(client.Conn().SessionID())
	fmt.Println(<-states, <-states, <-states)
	// Output:
	// connected
	// suspended reconnected
	// suspended lost reconnected
}
