package recipes_test

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A service starts before its ensemble. Open returns at once, and the election begins when a server is reachable.
func ExampleOpen() {
	server, err := zktest.Start()
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	server.Stop()

	client, err := recipes.Open([]string{server.Addr() + "/app"}, recipes.WithDialer(server.Dialer()))
	if err != nil {
		panic(err) // an invalid argument
	}
	defer func() { _ = client.Close() }()
	fmt.Println(client.State())
	election, err := latch.New(client, "/leader")
	if err != nil {
		panic(err)
	}
	if err := election.Start(); err != nil {
		panic(err)
	}
	defer func() { _ = election.Close() }()

	server.Put("/app", nil)                  // a chroot has to exist
	if err := server.Restart(); err != nil { // the ensemble is up
		panic(err)
	}
	term, err := election.Await(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(client.State(), term.Path()[:len("/app/leader")])
	// Output:
	// suspended
	// connected /app/leader
}
