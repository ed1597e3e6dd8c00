package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// An adopted connection whose session timeout is unknown suspends terms under the default policy
// too: the znode stays, and a new term begins on it.
func TestSuspensionOfAnAdoptedConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l, term := elections.Lead(t, elections.Adopt(t, srv))
		successor := elections.StartLatch(t, testclient.Connect(t, srv))
		<-successor.Decided()
		require.Zero(t, term.TrustedUntil())
		before := elections.Paths(srv)
		for range 3 {
			srv.Disconnect()
			require.ErrorIs(t, elections.Ended(t, term), recipes.ErrSuspended)
			next := elections.Await(t, l)
			require.NotSame(t, term, next)
			require.Equal(t, term.Path(), next.Path())
			require.Equal(t, term.FencingToken(), next.FencingToken())
			require.Equal(t, before, elections.Paths(srv))
			require.False(t, successor.HasLeadership())
			term = next
		}
	})
}

// A revocation stays in the znode: the term that begins on it after a suspension is revoked from
// its beginning, whenever the request came.
func TestRevocationOutlivesASuspension(t *testing.T) {
	for name, during := range map[string]bool{"before the suspension": false, "during the suspension": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client, peer := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy)), testclient.Connect(t, srv)
				l, term := elections.Lead(t, client)
				ask := func() { require.NoError(t, revoke.New(peer).AttemptRevoke(t.Context(), term.Path())) }
				if !during {
					ask()
					<-term.Revoked()
				}
				srv.Partition(elections.SessionOf(client))
				require.ErrorIs(t, elections.Ended(t, term), recipes.ErrSuspended)
				if during {
					ask()
				}
				bubble.Pass(time.Second)
				srv.Heal()
				next := elections.Await(t, l)
				require.Equal(t, term.Path(), next.Path())
				select {
				case <-next.Revoked():
				default:
					require.Fail(t, "the new term is not revoked")
				}
				require.NoError(t, next.Release())
				bubble.Pass(time.Second) // the term was short
				bubble.Pass(time.Second)
				again := elections.Await(t, l)
				select {
				case <-again.Revoked():
					require.Fail(t, "a new znode is revoked")
				default:
				}
			})
		})
	}
}
