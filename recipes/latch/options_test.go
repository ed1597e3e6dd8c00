package latch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Options configure a new latch, and can't change an existing one.
func TestOptionsServeSeveralLatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		var j elections.Journal
		opts := []latch.Option{latch.WithID("a"), latch.WithListener(j.Listener("a")), latch.WithCloseMode(latch.NotifyLeader)}
		for range 2 {
			l, _ := elections.Lead(t, client, opts...)
			bubble.Pass(0)
			require.NoError(t, l.Close())
			require.Equal(t, []string{"a leads", "a ends"}, j.Read())
		}
	})
}
