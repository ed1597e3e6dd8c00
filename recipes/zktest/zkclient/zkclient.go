package zkclient

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Connect returns a client that is connected to server, and closes the client at the end of the test.
// It connects through [zktest.Server.Dialer], and so works inside and outside a bubble of
// testing/synctest. The client knows all servers of an ensemble. opts are applied last. The test fails
// if no connection is established, or if the client can't be closed because a callback does not return.
func Connect(tb testing.TB, server *zktest.Server, opts ...recipes.Option) *recipes.Client {
	tb.Helper()
	return ConnectTo(tb, server, server.Addrs(), opts...)
}

// ConnectTo is Connect for a client that knows only the servers at addresses.
func ConnectTo(tb testing.TB, server *zktest.Server, addresses []string, opts ...recipes.Option) *recipes.Client {
	tb.Helper()
	opts = append([]recipes.Option{recipes.WithDialer(server.Dialer())}, opts...)
	client, err := recipes.Connect(tb.Context(), addresses, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}
