package zkcompat_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zkcompat"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A program with zk.Lock changes two lines: the connection, and the lock.
func Example() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	client, err := recipes.Connect(context.Background(), []string{server.Addr()}) // was: zk.Connect
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	lock := zkcompat.NewLock(client, "/locks/import", zk.WorldACL(zk.PermAll)) // was: zk.NewLock(conn, …)

	if err := lock.LockWithData([]byte(`{"host":"web-1"}`)); err != nil {
		log.Fatal(err)
	}
	select {
	case <-lock.Lost(): // new: stop working, because another program may have the lock soon
		fmt.Println("lost")
	default:
		children, _, err := client.Conn().Children("/locks/import") // was: conn.Children
		fmt.Println("working,", len(children), "contender", err)
	}
	fmt.Println(lock.Unlock())
	// Output:
	// working, 1 contender <nil>
	// <nil>
}
