package queue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Nobody leads behind a znode that is not ephemeral. The latch next to it reports that once, and leads when somebody has
// deleted the znode.
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
		require.Contains(t, log.Take(), `level=INFO msg="leader latch has recovered" path=`+elections.Path)
	})
}
