package election_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A leader that ignores a revocation yields all the same, to a higher priority and to a transfer.
func TestRevokedLeaderYields(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		low, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("low"), latch.WithPriority(0))
		client := testclient.Connect(t, srv)
		require.NoError(t, revoke.New(client).AttemptRevoke(t.Context(), term.Path()))
		high := elections.StartLatch(t, client, latch.WithID("high"), latch.WithPriority(5))
		bubble.Pass(time.Minute)
		require.True(t, bubble.IsClosed(term.Revoked()))
		require.True(t, high.HasLeadership())

		highTerm, _ := high.Leadership()
		require.NoError(t, revoke.New(client).AttemptRevoke(t.Context(), highTerm.Path()))
		require.NoError(t, high.TransferTo(t.Context(), "low"))
		require.True(t, low.HasLeadership())
	})
}

// A request to yield that follows a revocation at once does not hide the revocation.
func TestRevocationBehindARequestToYield(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithPriority(0))
		bubble.Pass(bubble.Moment)
		srv.Put(term.Path(), []byte("__YIELD__ priority nobody\n__REVOKE__"))
		bubble.Pass(bubble.Moment)
		require.True(t, bubble.IsClosed(term.Revoked()))
		participants, err := l.Participants(t.Context())
		require.NoError(t, err)
		require.True(t, participants[0].Revoked)
		require.True(t, l.HasLeadership())
	})
}
