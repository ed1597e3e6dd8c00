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

// startWithLock returns a server, a lock on /locks/report, and a function that closes both.
func startWithLock() (server *zktest.Server, lock *mutex.InterProcessMutex, stop func()) {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	client, err := recipes.Connect(context.Background(), []string{server.Addr()})
	if err != nil {
		log.Fatal(err)
	}
	lock, err = mutex.New(client, "/locks/report")
	if err != nil {
		log.Fatal(err)
	}
	return server, lock, func() { _ = errors.Join(client.Close(), server.Close()) }
}

// The server creates a contender's znode, but its answer is lost with the connection. The contender
// finds its znode again, and leaves no second znode behind.
func ExampleServer_DropReply() {
	server, lock, stop := startWithLock()
	defer stop()
	server.Put("/locks/report", nil) // so that the contender makes the next create
	requests := server.Observe()

	server.DropReply(zktest.OpCreate2, 1)
	lease, err := lock.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("handshakes:", requests.Count(zktest.OpConnect))
	fmt.Println("znodes while held:", len(server.Children("/locks/report")))
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("znodes afterwards:", len(server.Children("/locks/report")))
	// Output:
	// handshakes: 1
	// znodes while held: 1
	// znodes afterwards: 0
}

// Count the requests of three calls: the acquisition of a free lock, a re-entry further down the call tree, and the
// release.
func ExampleServer_Observe() {
	server, lock, stop := startWithLock()
	defer stop()
	server.Put("/locks/report", nil) // otherwise the first contender creates it, at extra cost
	ctx := context.Background()

	requests := server.Observe()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	reads := requests.Count(zktest.OpGetData, zktest.OpGetChildren, zktest.OpGetChildren2)
	fmt.Println("acquire:", requests.Count(zktest.OpCreate2), "create and", reads, "read behind it")

	requests = server.Observe()
	inner, err := lock.Acquire(lease.Context())
	if err != nil {
		log.Fatal(err)
	}
	if err := inner.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("re-entry:", requests.Count(), "requests")

	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("release:", requests.Count(zktest.OpDelete), "delete")
	// Output:
	// acquire: 1 create and 1 read behind it
	// re-entry: 0 requests
	// release: 1 delete
}

// A rule decides about every request before it is executed, and may call the server. Here the
// session ends just before the contender's znode is created: Acquire continues in a new session.
func ExampleServer_Inject() {
	server, lock, stop := startWithLock()
	defer stop()
	server.Put("/locks/report", nil)
	first := server.Sessions()[0].ID

	remove := server.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpCreate2 && r.Session == first {
			server.Expire(first)
		}
		return zktest.Fault{}
	})
	defer remove()
	lease, err := lock.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, alive := server.Session(first)
	fmt.Println("first session alive:", alive)
	fmt.Println("znodes:", len(server.Children("/locks/report")))
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// first session alive: false
	// znodes: 1
}
