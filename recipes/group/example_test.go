package group_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Two replicas of a service announce their addresses, and a balancer follows.
func Example() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	client, err := recipes.Connect(context.Background(), []string{server.Addr()}) // in a service: one a process
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = errors.Join(client.Close(), server.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	member := func(id string) *group.Group {
		g, err := group.New(client, "/services/web", group.WithID(id))
		if err != nil {
			log.Fatal(err)
		}
		return g
	}
	lists := member("balancer").Watch(ctx)
	fmt.Println(len(<-lists), "members")

	web1 := member("web-1")
	if err := web1.Join([]byte("10.0.0.7:8080")); err != nil {
		log.Fatal(err)
	}
	for _, m := range <-lists {
		fmt.Printf("%s at %s\n", m.ID, m.Data)
	}
	if err := web1.Leave(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(<-lists), "members")
	// Output:
	// 0 members
	// web-1 at 10.0.0.7:8080
	// 0 members
}

// React to the members that joined and left between two lists.
func ExampleDiff() {
	before := []group.Member{{ID: "web-1"}, {ID: "web-2"}}
	after := []group.Member{{ID: "web-2"}, {ID: "web-3"}}
	joined, left := group.Diff(before, after)
	fmt.Println("joined:", joined[0].ID)
	fmt.Println("left:", left[0].ID)
	// Output:
	// joined: web-3
	// left: web-1
}
