package zktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestObserveCountsRequestsOfACall(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		conn := w.conn(srv)
		log := srv.Observe()
		for range 100 {
			path, err := conn.Create("/a-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
			require.NoError(w, err)
			require.NoError(w, conn.Delete(path, -1))
		}
		require.Equal(w, 200, log.Count())
		require.Equal(w, 100, log.Count(zktest.OpCreate))
		require.Equal(w, 200, log.Count(zktest.OpCreate, zktest.OpDelete))
		require.Zero(w, log.Count(zktest.OpMulti))
		for i, r := range log.Requests() {
			require.Equal(w, conn.SessionID(), r.Session)
			require.Equal(w, []zktest.Op{zktest.OpCreate, zktest.OpDelete}[i%2], r.Op)
		}
		require.Equal(w, "/a-0000000099", log.Requests(zktest.OpDelete)[99].Path)
	})
}

func TestObserveSeesLostRequests(t *testing.T) {
	srv := zktest.NewServer(t)
	log := srv.Observe()
	c := tcp(t).session(srv)
	srv.DropRequest(zktest.OpCreate, 1)
	c.send(create("/a", 0), create("/b", 0))
	c.end()
	require.Len(t, log.Requests(zktest.OpCreate), 1)
	c = c.again(tcp(t).dial(srv))
	c.did(ping())
	require.Equal(t, 2, log.Count(zktest.OpConnect))
	require.Equal(t, 1, log.Count(zktest.OpPing))
	require.Equal(t, 1, log.Count(), "neither of these")
}

func TestObserveIgnoresRequestsInTransit(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		log := srv.Observe()
		c := w.session(srv)
		srv.Partition()
		c.send(create("/a", 0))
		c.hearsNothing()
		require.Zero(w, log.Count())
		srv.Heal()
		require.NoError(w, log.Wait(testkit.Context(w), 1, zktest.OpCreate))
	})
}

func TestWaitForRequests(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		log := srv.Observe()
		require.NoError(w, log.Wait(testkit.Context(w), 0))
		waited := make(chan error, 1)
		go func() { waited <- log.Wait(testkit.Context(w), 2, zktest.OpCreate) }()
		c := w.session(srv)
		c.did(create("/a", 0))
		c.did(get("/a", false))
		require.Empty(w, waited, "one is not two")
		c.did(create("/b", 0))
		require.NoError(w, testkit.Receive(w, waited, "the wait is over"))
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		log := srv.Observe()
		w.session(srv).did(create("/a", 0))
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		waited := make(chan error)
		go func() { waited <- log.Wait(ctx, 2) }()
		cancel(why)
		err := testkit.Receive(w, waited, "the wait is over")
		require.ErrorIs(w, err, why)
		require.EqualError(w, err, "zktest: 1 of 2 requests: enough")
		require.NoError(w, log.Wait(ctx, 1), "they are there")
	})
}

func TestLogsAreIndependentAndStop(t *testing.T) {
	srv := zktest.NewServer(t)
	c := tcp(t).session(srv)
	first := srv.Observe()
	c.did(create("/a", 0))
	second := srv.Observe()
	c.did(create("/b", 0))
	first.Stop()
	first.Stop()
	c.did(create("/c", 0))
	require.Equal(t, 2, first.Count())
	require.Equal(t, 2, second.Count())
	requests := second.Requests()
	requests[0] = zktest.Request{}
	require.Equal(t, "/b", second.Requests()[0].Path, "a copy is handed out")
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	require.ErrorIs(t, first.Wait(ctx, 3), context.DeadlineExceeded)
}

// The cost of a wait for many requests is proportional to their number.
func TestWaitForMany(t *testing.T) {
	srv := zktest.NewServer(t)
	log := srv.Observe()
	const n = 20_000
	waited := make(chan error)
	go func() { waited <- log.Wait(testkit.Context(t), n) }()
	c := tcp(t).session(srv)
	go c.write(c.encode(slices.Repeat([]request{exists("/", false)}, n)...))
	for range n {
		c.read()
	}
	require.NoError(t, testkit.Receive(t, waited, "the wait is over"))
}

func TestOpNames(t *testing.T) {
	require.Equal(t, "any getChildren2 op 4711", fmt.Sprint(zktest.OpAny, zktest.OpGetChildren2, zktest.Op(4711)))
}
