package latch_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

// A server that refuses to let the latch watch the znode ahead is told once, however often the
// latch tries, and is over only when the latch really watches.
func TestRefusalToWatchTheZnodeAheadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, term := lead(t, testclient.Connect(t, srv))
		var log logBuffer
		errs := make(chan error, 1000)
		client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		allow := refuseToShow(srv, term.Path())
		l := enter(t, client, watch(errs))
		for range 10 * 60 {
			pass(time.Second)
			require.ErrorContains(t, l.Err(), "unknown error: -66")
		}
		require.Len(t, taken(errs), 1)
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
		require.Zero(t, strings.Count(log.String(), "leader latch has recovered"), log.String())
		require.False(t, isDecided(l))

		allow()
		pass(time.Minute)
		require.NoError(t, l.Err())
		require.True(t, isDecided(l))
		require.Equal(t, 1, strings.Count(log.String(), "leader latch has recovered"), log.String())
		require.NoError(t, first.Close())
		await(t, l)
		require.Empty(t, taken(errs))
	})
}
