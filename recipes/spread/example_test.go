package spread_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Four shards and two replicas, of which the second joins later.
//
//nolint:gocognit // errors end an example
func Example() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	connect := func() *recipes.Client {
		client, err := recipes.Connect(context.Background(), []string{server.Addr()}, recipes.WithSessionTimeout(3*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	one, two := connect(), connect()
	defer func() { _ = errors.Join(one.Close(), two.Close(), server.Close()) }()

	changed := make(chan struct{}, 1)
	listener := latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	replica := func(client *recipes.Client, id string) (leads func() int) {
		balance, err := spread.New(client, "/shards/spread", spread.WithID(id))
		if err != nil {
			log.Fatal(err)
		}
		var shards []*latch.LeaderLatch
		for n := range 4 {
			shard, err := latch.New(client, fmt.Sprint("/shards/", n), latch.WithID(id), latch.WithPriority(0), listener)
			if err != nil {
				log.Fatal(err)
			}
			if _, err := balance.Add(shard); err != nil {
				log.Fatal(err)
			}
			if err := shard.Start(); err != nil {
				log.Fatal(err)
			}
			<-shard.Decided()
			shards = append(shards, shard)
		}
		if err := balance.Start(); err != nil {
			log.Fatal(err)
		}
		return func() (n int) {
			for _, shard := range shards {
				if shard.HasLeadership() {
					n++
				}
			}
			return n
		}
	}
	first := replica(one, "replica-1")
	fmt.Println("alone:", first())

	second := replica(two, "replica-2")
	for first() != 2 || second() != 2 { // a service does not wait for that
		<-changed
	}
	fmt.Println("together:", first(), second())
	// Output:
	// alone: 4
	// together: 2 2
}
