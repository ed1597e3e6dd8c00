package recipes_test

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The client knows one server, and finds the others in the ensemble's configuration.
func ExampleWithEnsembleTracking() {
	server, err := zktest.Start(zktest.WithServers(2))
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	server.Put("/zookeeper/config", fmt.Appendf(nil, // written by the servers at each reconfiguration
		"server.1=zk1:2888:3888:participant;%s\nserver.2=zk2:2888:3888:participant;%s\nversion=1", server.Addrs()[0], server.Addrs()[1]))

	client, err := recipes.Connect(context.Background(), server.Addrs()[:1], recipes.WithEnsembleTracking())
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	states, stop := client.Subscribe()
	defer stop()
	fmt.Println(<-states)

	server.Stop(server.Addrs()[0])
	fmt.Println(<-states)
	fmt.Println(<-states, client.Health().Server == server.Addrs()[1])
	// Output:
	// connected
	// suspended
	// reconnected true
}
