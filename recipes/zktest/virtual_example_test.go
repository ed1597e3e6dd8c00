package zktest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A holder whose network falls silent stops before the next one gets in. The package's documentation shows this
// function, and TestDocumentation compares the two.
func TestHolderStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		connect := func() (*recipes.Client, *mutex.InterProcessMutex) {
			client, err := recipes.Connect(t.Context(), []string{server.Addr()},
				recipes.WithDialer(server.Dialer()), recipes.WithSessionTimeout(30*time.Second))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			lock, err := mutex.New(client, "/locks/report")
			require.NoError(t, err)
			return client, lock
		}
		holder, held := connect()
		_, wanted := connect()
		lease, err := held.Acquire(t.Context())
		require.NoError(t, err)

		server.Partition(holder.Conn().SessionID()) // silence, and no reset
		start := time.Now()
		<-lease.Context().Done()
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrSessionLost)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Len(t, server.Children("/locks/report"), 1, "the server has not given it up yet")

		next, err := wanted.Acquire(t.Context()) // waits for that
		require.NoError(t, err)
		require.WithinDuration(t, start.Add(30*time.Second), time.Now(), 50*time.Millisecond) // a tick
		require.Greater(t, next.FencingToken(), lease.FencingToken())
	})
}

func TestDocumentation(t *testing.T) {
	here, err := os.ReadFile("virtual_example_test.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(here), "func TestHolderStopsInTime(")
	require.True(t, found)
	body, _, found := strings.Cut(rest, "\n}\n")
	require.True(t, found)
	test := "func TestHolderStopsInTime(" + body + "\n}"

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, strings.ReplaceAll(string(doc), "//\n", "//\t\n"), "//\t"+strings.ReplaceAll(test, "\n", "\n//\t"))
}
