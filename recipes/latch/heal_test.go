package latch_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// quotaExceeded is a code that zk.Conn has no name for.
const quotaExceeded zktest.Refusal = -125

// refuse makes the server answer the requests of an operation with a refusal.
func refuse(srv *zktest.Server, op zktest.Op, refusal zktest.Refusal) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			return zktest.Fault{Refusal: refusal}
		}
		return zktest.Fault{}
	})
}

// A latch that the server refuses goes on, with pauses, until it is allowed to lead.
func TestRefusedLatchLeadsOnceItMay(t *testing.T) {
	for name, c := range map[string]struct {
		op      zktest.Op
		refusal zktest.Refusal
	}{
		"no right to create":            {zktest.OpCreate2, zktest.RefuseNoAuth},
		"no right to create the parent": {zktest.OpCreateContainer, zktest.RefuseNoAuth},
		"no right to list":              {zktest.OpGetChildren2, zktest.RefuseNoAuth},
		"quota exceeded":                {zktest.OpCreate2, quotaExceeded},
		"unknown code at the list":      {zktest.OpGetChildren2, -66},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				allow := refuse(srv, c.op, c.refusal)
				log := srv.Observe()
				l := enter(t, testclient.Connect(t, srv))
				pass(testkit.Shorter(time.Hour, 10*time.Minute))
				require.False(t, l.HasLeadership())
				require.Less(t, log.Count(zktest.OpCreate2), 300, "no loop")
				allow()
				pass(time.Minute)
				require.True(t, l.HasLeadership())
				require.NoError(t, l.Close())
				require.Empty(t, srv.Children(election))
			})
		})
	}
}

// A latch that may not read its own znode leads, because it has made it. It says that it can't hear of a
// revocation, and a deletion of the znode ends its term all the same.
func TestLatchThatMayNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		refuse(srv, zktest.OpGetData, zktest.RefuseNoAuth)
		var log logBuffer
		l, term := lead(t, testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		pass(time.Minute)
		require.NoError(t, term.Context().Err())
		require.Contains(t, log.String(), "own znode can't be read")
		srv.Delete(term.Path())
		pass(timeout)
		require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrNodeDeleted)
		require.NoError(t, l.Close())
	})
}

// private puts a contender at the head of the queue whose znode only its owner may read.
func private(t *testing.T, srv *zktest.Server) (path string) {
	t.Helper()
	srv.Put(election, nil)
	owner := testclient.Connect(t, srv, recipes.WithAuth("digest", []byte("owner:secret")))
	path, err := owner.Conn().Create(election+"/latch-", []byte("private"), zk.FlagEphemeralSequential, zk.AuthACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// A predecessor that may not be read is waited for all the same, and leaves no watch behind.
func TestPredecessorThatMayNotBeRead(t *testing.T) {
	for name, prepare := range map[string]func(srv *zktest.Server){
		"exists is answered": func(*zktest.Server) {},
		"exists is refused":  func(srv *zktest.Server) { forbid(srv, zktest.OpExists) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				ahead := private(t, srv)
				prepare(srv)
				client := testclient.Connect(t, srv)
				log := srv.Observe()
				l := enter(t, client)
				pass(tick)
				place := l.Path()
				waited := testkit.Shorter(time.Hour, 5*time.Minute)
				pass(waited)
				require.ElementsMatch(t, []string{ahead, place}, paths(srv), "it keeps its place")
				require.Less(t, log.Count(zktest.OpGetChildren2), int(waited.Seconds())+100)
				require.NoError(t, l.Err())
				require.True(t, isDecided(l))
				require.False(t, l.HasLeadership())

				srv.Delete(ahead)
				pass(time.Second)
				require.True(t, l.HasLeadership())
				require.Equal(t, place, await(t, l).Path())
				require.NoError(t, l.Close())
				require.Zero(t, watchChannels(client.Conn()))
			})
		})
	}
}

// One participant whose znode may not be read hides no other.
func TestUnreadableParticipant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ahead := private(t, srv)
		l := enter(t, testclient.Connect(t, srv), latch.WithID("b"))
		pass(time.Second)
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
		pass(time.Second)
		require.Equal(t, []string{"b"}, told(seen))
	})
}
