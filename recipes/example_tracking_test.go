package recipes_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The client knows one server, and finds the others in the ensemble's configuration.
func ExampleWithEnsembleTracking() {
	server, err := zktest.Start(zktest.WithServers(3))
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	a := server.Addrs()
	server.Put("/zookeeper/config", fmt.Appendf(nil, // written by the servers at each reconfiguration
		"server.1=zk1:2888:3888:participant;%s\nserver.2=zk2:2888:3888:participant;%s\nserver.3=zk3:2888:3888:participant;%s\nversion=1", a[0], a[1], a[2]))

	client, err := recipes.Connect(context.Background(), a[:1], recipes.WithEnsembleTracking())
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	states, stop := client.Subscribe()
	defer stop()
	fmt.Println(<-states)

	server.Stop(a[0])
	fmt.Println(<-states)
	fmt.Println(<-states, slices.Contains(a[1:], client.Health().Server))
	// Output:
	// connected
	// suspended
	// reconnected true
}
