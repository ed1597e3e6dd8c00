package latch_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newClients returns two clients of a ZooKeeper in this process, and a function that closes everything. Two services
// would each call recipes.Connect with their servers.
func newClients() (one, other *recipes.Client, stop func()) {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	connect := func() *recipes.Client {
		client, err := recipes.Connect(context.Background(), []string{server.Addr()})
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	one, other = connect(), connect()
	return one, other, func() { _ = errors.Join(one.Close(), other.Close(), server.Close()) }
}

// One of two instances leads. When it closes, the other one leads, with a higher token.
func Example() {
	one, other, stop := newClients()
	defer stop()
	ctx := context.Background()

	a, err := latch.New(one, "/services/billing", latch.WithID("a"))
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Start(); err != nil {
		log.Fatal(err)
	}
	term, err := a.Await(ctx) // a term of leadership: work under its context
	if err != nil {
		log.Fatal(err)
	}

	b, err := latch.New(other, "/services/billing", latch.WithID("b"))
	if err != nil {
		log.Fatal(err)
	}
	if err := b.Start(); err != nil {
		log.Fatal(err)
	}
	<-b.Decided() // now it is known whether b leads
	leader, err := b.Leader(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("leads:", leader.ID, "b does:", b.HasLeadership())

	if err := a.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a's term:", context.Cause(term.Context()))
	next, err := b.Await(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("b leads:", b.HasLeadership(), "with a higher token:", next.FencingToken() > term.FencingToken())
	// Output:
	// leads: a b does: false
	// a's term: released
	// b leads: true with a higher token: true
}

// Listeners are called for each term. The listeners of a closed latch are called only in the mode NotifyLeader.
func ExampleLeaderLatch_AddListener() {
	client, _, stop := newClients()
	defer stop()
	l, err := latch.New(client, "/services/billing", latch.WithCloseMode(latch.NotifyLeader))
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan struct{})
	remove := l.AddListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			fmt.Println("leads:", term.Context().Err() == nil)
			close(begun)
		},
		NotLeader: func() { fmt.Println("leads no more") },
	})
	defer remove()
	if err := l.Start(); err != nil {
		log.Fatal(err)
	}
	<-begun
	if err := l.Close(); err != nil { // returns when the listeners have
		log.Fatal(err)
	}
	// Output:
	// leads: true
	// leads no more
}

// Any client can observe an election without taking part.
func ExampleLeaderLatch_Observe() {
	client, other, stop := newClients()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	observer, err := latch.New(other, "/services/billing")
	if err != nil {
		log.Fatal(err)
	}
	leaders := observer.Observe(ctx)
	fmt.Printf("leads: %q\n", (<-leaders).ID)

	l, err := latch.New(client, "/services/billing", latch.WithID("a"))
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Start(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("leads: %q\n", (<-leaders).ID)
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("leads: %q\n", (<-leaders).ID)
	cancel()
	_, open := <-leaders
	fmt.Println("goes on:", open)
	// Output:
	// leads: ""
	// leads: "a"
	// leads: ""
	// goes on: false
}

// A leader can bind its writes in ZooKeeper to its term. After the term they fail, even if the leader does not know
// yet.
func ExampleLeaderLatch_Leadership() {
	client, _, stop := newClients()
	defer stop()
	l, err := latch.New(client, "/services/billing")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Start(); err != nil {
		log.Fatal(err)
	}
	if _, err := l.Await(context.Background()); err != nil {
		log.Fatal(err)
	}

	term, leads := l.Leadership()
	if !leads {
		log.Fatal("not the leader")
	}
	_, err = client.Conn().Multi(term.Check(),
		&zk.CreateRequest{Path: "/report", Data: []byte("mine"), Acl: zk.WorldACL(zk.PermAll)})
	fmt.Println("while it leads:", err)

	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = client.Conn().Multi(term.Check(),
		&zk.SetDataRequest{Path: "/report", Data: []byte("too late"), Version: -1})
	fmt.Println("afterwards:", err)
	// Output:
	// while it leads: <nil>
	// afterwards: zk: node does not exist
}

// Hand the leadership to a chosen candidate, before the host of the leader is taken down. All candidates have a priority, here the same.
func ExampleLeaderLatch_TransferTo() {
	one, other, stop := newClients()
	defer stop()
	ctx := context.Background()

	start := func(client *recipes.Client, id string) *latch.LeaderLatch {
		l, err := latch.New(client, "/services/billing", latch.WithID(id), latch.WithPriority(0))
		if err != nil {
			log.Fatal(err)
		}
		if err := l.Start(); err != nil {
			log.Fatal(err)
		}
		<-l.Decided()
		return l
	}
	a, b := start(one, "a"), start(other, "b")
	fmt.Println("a leads:", a.HasLeadership())

	fmt.Println(a.TransferTo(ctx, "b"))
	if _, err := b.Await(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a leads:", a.HasLeadership(), "b leads:", b.HasLeadership())
	// Output:
	// a leads: true
	// <nil>
	// a leads: false b leads: true
}
