package queue_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A latch that the server refuses keeps trying, with pauses, until it is allowed to lead.
func TestRefusedLatchLeadsOnceItMay(t *testing.T) {
	for name, c := range map[string]struct {
		op      zktest.Op
		refusal zktest.Refusal
	}{
		"no right to create":            {zktest.OpCreate2, zktest.RefuseNoAuth},
		"no right to create the parent": {zktest.OpCreateContainer, zktest.RefuseNoAuth},
		"no right to list":              {zktest.OpGetChildren2, zktest.RefuseNoAuth},
		"quota exceeded":                {zktest.OpCreate2, elections.QuotaExceeded},
		"unknown code at the list":      {zktest.OpGetChildren2, -66},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				allow := elections.Refuse(srv, c.op, c.refusal)
				log := srv.Observe()
				l := elections.StartLatch(t, testclient.Connect(t, srv))
				bubble.Pass(testkit.Shorter(time.Hour, 10*time.Minute))
				require.False(t, l.HasLeadership())
				require.Less(t, log.Count(zktest.OpCreate2), 300, "no loop")
				allow()
				bubble.Pass(time.Minute)
				require.True(t, l.HasLeadership())
				require.NoError(t, l.Close())
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

// A latch that may not read its own znode leads, because it created the znode. It logs that it can't notice a
// revocation. A deletion of the znode ends its term even so.
func TestLatchThatMayNotRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		elections.Refuse(srv, zktest.OpGetData, zktest.RefuseNoAuth)
		var log testkit.Log
		l, term := elections.Lead(t, testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		bubble.Pass(time.Minute)
		require.NoError(t, term.Context().Err())
		require.Contains(t, log.String(), "can't read own znode")
		srv.Delete(term.Path())
		bubble.Pass(elections.Timeout)
		require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrNodeDeleted)
		require.NoError(t, l.Close())
	})
}

// private puts a contender at the head of the queue whose znode only its owner may read.
func private(t *testing.T, srv *zktest.Server) (path string) {
	t.Helper()
	srv.Put(elections.Path, nil)
	owner := testclient.Connect(t, srv, recipes.WithAuth("digest", []byte("owner:secret")))
	path, err := owner.Conn().Create(elections.Path+"/latch-", []byte("private"), zk.FlagEphemeralSequential, zk.AuthACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// A predecessor that may not be read is waited for all the same, and leaves no watch behind.
func TestPredecessorThatMayNotBeRead(t *testing.T) {
	for name, prepare := range map[string]func(srv *zktest.Server){
		"exists is answered": func(*zktest.Server) {},
		"exists is refused":  func(srv *zktest.Server) { elections.Forbid(srv, zktest.OpExists) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				ahead := private(t, srv)
				prepare(srv)
				client := testclient.Connect(t, srv)
				log := srv.Observe()
				l := elections.StartLatch(t, client)
				bubble.Pass(elections.Tick)
				place := l.Path()
				waited := testkit.Shorter(time.Hour, 5*time.Minute)
				bubble.Pass(waited)
				require.ElementsMatch(t, []string{ahead, place}, elections.Paths(srv), "it keeps its place")
				require.Less(t, log.Count(zktest.OpGetChildren2), int(waited.Seconds())+100)
				require.NoError(t, l.Err())
				require.True(t, elections.IsDecided(l))
				require.False(t, l.HasLeadership())

				srv.Delete(ahead)
				bubble.Pass(time.Second)
				require.True(t, l.HasLeadership())
				require.Equal(t, place, elections.Await(t, l).Path())
				require.NoError(t, l.Close())
				require.Zero(t, elections.WatchChannels(client.Conn()))
			})
		})
	}
}

// One participant whose znode may not be read hides no other.
func TestUnreadableParticipant(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ahead := private(t, srv)
		l := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("b"))
		bubble.Pass(time.Second)
		queue, err := l.Participants(t.Context())
		require.NoError(t, err)
		require.Len(t, queue, 2)
		require.Equal(t, ahead, queue[0].Path)
		require.Empty(t, queue[0].ID)
		require.True(t, queue[0].Leader)
		require.Equal(t, "b", queue[1].ID)

		leader, err := l.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, queue[0], leader)
		seen := l.Observe(t.Context())
		require.Equal(t, leader, <-seen)
		srv.Delete(ahead)
		bubble.Pass(time.Second)
		require.Equal(t, []string{"b"}, elections.Told(seen))
	})
}
