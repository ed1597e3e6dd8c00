package election_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// cutAt makes the server end each connection at a request of an operation, from the first such request on for as long as given. session 0
// stands for every session.
func cutAt(srv *zktest.Server, op zktest.Op, session int64, howLong time.Duration) (restore func()) {
	var since atomic.Pointer[time.Time]
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op != op || session != 0 && r.Session != session {
			return zktest.Fault{}
		}
		now := time.Now()
		since.CompareAndSwap(nil, &now)
		if now.Sub(*since.Load()) >= howLong {
			return zktest.Fault{}
		}
		return zktest.Fault{Lost: zktest.RequestLost}
	})
}

// An election survives connections that are cut at one operation, for any length of time.
func TestElectionAfterCutConnections(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpMulti} {
		for _, howLong := range []time.Duration{3500 * time.Millisecond, 6 * time.Minute}[:testkit.Shorter(2, 1)] {
			t.Run(fmt.Sprintf("%v/%v", op, howLong), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := zktest.NewServer(t)
					first := testclient.Connect(t, srv)
					held := elections.StartLatch(t, first)
					elections.Await(t, held)
					second, third := testclient.Connect(t, srv), testclient.Connect(t, srv)
					restore := cutAt(srv, op, elections.SessionOf(second), howLong)
					defer restore()
					l := elections.StartLatch(t, second)
					bubble.Pass(time.Minute)
					require.NoError(t, held.Close())

					var leads atomic.Bool
					s, err := selector.New(third, "/jobs", func(ctx context.Context, _ *recipes.Lease) error {
						leads.Store(true)
						defer leads.Store(false)
						<-ctx.Done()
						return nil
					}, selector.WithAutoRequeue())
					require.NoError(t, err)
					defer cutAt(srv, op, elections.SessionOf(third), howLong)()
					require.NoError(t, s.Start())

					bubble.Pass(howLong + 40*time.Second)
					require.True(t, l.HasLeadership(), l.Err())
					require.NoError(t, l.Err())
					require.True(t, leads.Load())
					require.NoError(t, s.Close())
				})
			})
		}
	}
}

// A candidate whose servers seem to lack an operation reports that once, and leads when they support it.
func TestElectionOnServersThatLackAnOperation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		allow := cutAt(srv, zktest.OpGetChildren2, 0, time.Hour)
		errs := make(chan error, 100)
		l := elections.StartLatch(t, testclient.Connect(t, srv), elections.ErrorsTo(errs))
		bubble.Pass(10 * time.Minute)
		told := elections.Taken(errs)
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], recipes.ErrUnsupported)
		require.ErrorIs(t, l.Err(), recipes.ErrUnsupported)
		allow()
		elections.Await(t, l)
		require.NoError(t, l.Err())
	})
}

// A lock works soon after its client's connections were cut for some seconds, and its release reaches the others.
func TestLockAfterCutConnections(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpDelete, zktest.OpGetChildren2, zktest.OpCreate2} {
		for _, howLong := range []time.Duration{400 * time.Millisecond, 2500 * time.Millisecond, elections.Timeout - time.Second} {
			t.Run(fmt.Sprintf("%v/%v", op, howLong), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := zktest.NewServer(t)
					a, b := testclient.Connect(t, srv), testclient.Connect(t, srv)
					defer cutAt(srv, op, elections.SessionOf(a), howLong)()
					own, err := mutex.New(a, "/stock")
					require.NoError(t, err)
					other, err := mutex.New(b, "/stock")
					require.NoError(t, err)
					beganAt := time.Now()
					lease, err := own.Acquire(t.Context())
					require.NoError(t, err)
					_ = lease.Release()
					next, err := other.Acquire(t.Context())
					require.NoError(t, err)
					require.Less(t, time.Since(beganAt), howLong+5*time.Second)
					require.NoError(t, next.Release())
				})
			})
		}
	}
}
