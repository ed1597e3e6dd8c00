package testkit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// failing notes a failure in place of the test.
type failing struct {
	testing.TB
	failed bool
}

// failed is the panic value of Fatalf, because a test can't continue after it.
type failed struct{}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(failed{})
}

func TestEventually(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		start := time.Now()
		testkit.Eventually(t, func() bool { return time.Since(start) > time.Second }, "a second")
		require.Less(t, time.Since(start), 1100*time.Millisecond)
		testkit.EventuallyIn(t, time.Second, func() bool { return true }, "at once")

		f := &failing{TB: t}
		start = time.Now()
		require.Panics(t, func() { testkit.Eventually(f, func() bool { return false }, "never") })
		require.True(t, f.failed)
		require.Equal(t, testkit.Patience, time.Since(start))
	})
}

func TestReceive(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		values := make(chan int, 1)
		values <- 7
		require.Equal(t, 7, testkit.Receive(t, values, "the value"))
		f := &failing{TB: t}
		require.Panics(t, func() { testkit.Receive(f, values, "another") })
		require.True(t, f.failed)
		close(values)
		require.Zero(t, testkit.Receive(t, values, "the close"))
	})
}

func TestPaths(t *testing.T) {
	first := testkit.Path(t)
	require.NotEqual(t, first, testkit.Path(t))
	t.Run("with 'quotes', a / and blanks", func(t *testing.T) {
		require.Regexp(t, `^/TestPaths-with_quotes_a_-_and_blanks-[A-Z2-7]+$`, testkit.Path(t))
	})
}

func TestClients(t *testing.T) {
	server := zktest.NewServer(t)
	for _, client := range []*recipes.Client{
		testclient.Connect(t, server),
		testclient.Dial(t, server.Addrs()),
	} {
		require.Equal(t, testclient.SessionTimeout, client.SessionTimeout())
	}
	require.Equal(t, 9*time.Second, testclient.Dial(t, server.Addrs(), recipes.WithSessionTimeout(9*time.Second)).SessionTimeout())
	conn := testkit.Conn(t, server.Addrs(), time.Second)
	_, _, err := conn.Exists("/")
	require.NoError(t, err)
	require.NoError(t, testkit.Context(t).Err())
}
