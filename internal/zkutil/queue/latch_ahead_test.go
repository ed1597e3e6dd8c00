package queue_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// refuseToShow makes the server answer each read of a znode with a code that is not known here.
func refuseToShow(srv *zktest.Server, path string) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpGetData && r.Path == path {
			return zktest.Fault{Refusal: -66}
		}
		return zktest.Fault{}
	})
}

// A server's refusal to let the latch watch the znode ahead is reported once, for any number of attempts, and cleared
// only when the latch really watches.
func TestRefusalToWatchTheZnodeAheadIsTold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, term := elections.Lead(t, testclient.Connect(t, srv))
		var log testkit.Log
		errs := make(chan error, 1000)
		client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		allow := refuseToShow(srv, term.Path())
		l := elections.StartLatch(t, client, elections.ErrorsTo(errs))
		for range 10 * 60 {
			bubble.Pass(time.Second)
			require.ErrorContains(t, l.Err(), "unknown error: -66")
		}
		require.Len(t, elections.Taken(errs), 1)
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
		require.Zero(t, strings.Count(log.String(), "leader latch recovered"), log.String())
		require.False(t, elections.IsDecided(l))

		allow()
		bubble.Pass(time.Minute)
		require.NoError(t, l.Err())
		require.True(t, elections.IsDecided(l))
		require.Equal(t, 1, strings.Count(log.String(), "leader latch recovered"), log.String())
		require.NoError(t, first.Close())
		elections.Await(t, l)
		require.Empty(t, elections.Taken(errs))
	})
}
