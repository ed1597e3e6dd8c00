package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A waiting latch knows its own id and znode, and finds itself among the participants.
func TestOwnIDAndPath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, term := elections.Lead(t, testclient.Connect(t, srv))
		require.Equal(t, term.Path(), first.Path())
		second := elections.NewLatch(t, testclient.Connect(t, srv), latch.WithID("b"))
		require.Equal(t, "b", second.ID())
		require.Empty(t, second.Path(), "not started")
		require.NoError(t, second.Start())
		<-second.Decided()
		queue, err := second.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{first.ID(), "b"}, []string{queue[0].ID, queue[1].ID})
		require.Equal(t, []string{term.Path(), second.Path()}, []string{queue[0].Path, queue[1].Path})

		before := second.Path()
		srv.Delete(before)
		bubble.Pass(time.Second)
		require.NotEmpty(t, second.Path())
		require.NotEqual(t, before, second.Path(), "it has joined again")
		require.NoError(t, second.Close())
		require.Empty(t, second.Path())
	})
}

// Participants have token and time, and a revocation does not look like an id.
func TestParticipantsTellTokenTimeAndRevocation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		began := time.Now()
		l, term := elections.Lead(t, client, latch.WithID("a"))
		bubble.Pass(testkit.Shorter(time.Hour, 10*time.Minute))
		first, err := l.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, term.FencingToken(), first.Token)
		require.WithinDuration(t, began, first.Since, time.Second)
		require.False(t, first.Revoked)

		require.NoError(t, revoke.New(client).AttemptRevoke(t.Context(), term.Path()))
		queue, err := l.Participants(t.Context())
		require.NoError(t, err)
		first.ID, first.Revoked = "", true
		require.Equal(t, []recipes.Participant{first}, queue)
	})
}
