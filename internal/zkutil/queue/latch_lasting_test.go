package queue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// No candidate leads behind a znode that is not ephemeral. The latch next to it reports that once, and leads after its
// deletion.
func TestLatchReportsAZnodeThatIsNotEphemeral(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		const lasting = elections.Path + "/latch-0000000000"
		srv.Put(lasting, nil)
		var told []error
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
		log.Take()
		l := elections.StartLatch(t, client, latch.WithErrorHandler(func(err error) { told = append(told, err) }))
		<-l.Decided()
		require.ErrorIs(t, l.Err(), recipes.ErrNotEphemeral)
		require.EqualError(t, l.Err(), "latch: join "+elections.Path+": behind a znode that is not ephemeral: "+lasting)
		leader, err := l.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, lasting, leader.Path)
		require.True(t, leader.NotEphemeral)

		for range 3 { // other looks at the queue
			srv.Disconnect(elections.SessionOf(client))
			bubble.Pass(time.Minute)
		}
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], recipes.ErrNotEphemeral)
		lines := log.Take()
		require.Equal(t, `level=ERROR msg="leader latch failed" path=`+elections.Path+
			` err="latch: join `+elections.Path+`: behind a znode that is not ephemeral: `+lasting+`"`, lines[0])

		srv.Delete(lasting)
		elections.Await(t, l)
		require.NoError(t, l.Err())
		bubble.Pass(0)
		require.Contains(t, log.Take(), `level=INFO msg="leader latch recovered" path=`+elections.Path)
	})
}

// A candidate behind a contender of another recipe may wait for ever, and slow waits are not logged for candidates. So it
// reports that once, in the log and to its handler, and leads after the other contender leaves. A candidate behind one of its
// own kind reports nothing.
func TestCandidateBehindAnotherRecipe(t *testing.T) {
	for name, c := range map[string]struct {
		ahead func(t *testing.T, client *recipes.Client) (leave func())
		err   error
	}{
		"mutex": {err: recipes.ErrOtherLayout, ahead: func(t *testing.T, client *recipes.Client) func() {
			t.Helper()
			lease := bubble.Acquire(t, locks.MutexOn(t, client, elections.Path).Acquire)
			return func() { require.NoError(t, lease.Release()) }
		}},
		"latch": {ahead: func(t *testing.T, client *recipes.Client) func() {
			t.Helper()
			l := elections.StartLatch(t, client)
			elections.Await(t, l)
			return func() { require.NoError(t, l.Close()) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &testkit.Log{}
				leave := c.ahead(t, testclient.ConnectSettled(t, srv))
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn)))
				var told []error
				l := elections.StartLatch(t, client, latch.WithErrorHandler(func(err error) { told = append(told, err) }))
				<-l.Decided()
				require.ErrorIs(t, l.Err(), c.err)
				for range 5 { // other looks at the queue
					srv.Disconnect(elections.SessionOf(client))
					bubble.Pass(time.Minute)
				}
				lines := log.Take()
				if c.err != nil {
					require.Len(t, told, 1)
					require.ErrorIs(t, told[0], c.err)
					require.Len(t, lines, 1)
					require.Contains(t, lines[0], "another kind of lock uses this path: "+elections.Path+"/_c_")
				} else {
					require.Empty(t, told)
					require.Empty(t, lines)
				}
				leave()
				elections.Await(t, l)
				require.NoError(t, l.Err())
			})
		})
	}
}
