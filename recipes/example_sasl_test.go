package recipes_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The servers demand a login, and the client's znodes are for the same user alone.
func ExampleWithSASL() {
	server, err := zktest.Start(zktest.WithSASL(map[string]string{"ann": "secret"}), zktest.WithSASLRequired())
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	ctx := context.Background()

	client, err := recipes.Connect(ctx, []string{server.Addr()},
		recipes.WithSASL(recipes.DigestMD5("ann", "secret")),
		recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		panic(err)
	}
	err = lock.Do(ctx, func(context.Context, *recipes.Lease) error {
		fmt.Println("ann holds the lock")
		return nil
	})
	if err != nil {
		panic(err)
	}

	_, err = recipes.Connect(ctx, []string{server.Addr()}, recipes.WithSASL(recipes.DigestMD5("ann", "guessed")))
	fmt.Println(errors.Is(err, recipes.ErrLoginRefused))
	// Output:
	// ann holds the lock
	// true
}
