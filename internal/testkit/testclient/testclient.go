package testclient

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// SessionTimeout is the session timeout of the clients, unless an option overrides it.
const SessionTimeout = 6 * time.Second

// Connect returns a client of a zktest server, with all of the server's addresses. The client is closed at the end of the test.
func Connect(tb testing.TB, server *zktest.Server, opts ...recipes.Option) *recipes.Client {
	tb.Helper()
	return zkclient.Connect(tb, server, withDefaults(opts)...)
}

// ConnectSettled is [Connect] for a bubble of testing/synctest, plus 10 ms: by then everything that belongs to the connection
// is done, and the test's next action takes no time.
func ConnectSettled(tb testing.TB, server *zktest.Server, opts ...recipes.Option) *recipes.Client {
	tb.Helper()
	client := Connect(tb, server, opts...)
	time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
	return client
}

// Dial returns a client of servers reached over TCP. The client is closed at the end of the test.
func Dial(tb testing.TB, servers []string, opts ...recipes.Option) *recipes.Client {
	tb.Helper()
	client, err := recipes.Connect(testkit.Context(tb), servers, withDefaults(opts)...)
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

func withDefaults(opts []recipes.Option) []recipes.Option {
	return append([]recipes.Option{recipes.WithSessionTimeout(SessionTimeout), recipes.WithConnectTimeout(testkit.Patience)}, opts...)
}
