package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// sentOps are all operations that the engine sends, except those of the handshake.
var sentOps = []zktest.Op{
	zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpExists, zktest.OpGetData,
	zktest.OpSetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpMulti, zktest.OpMultiRead, zktest.OpSetWatches, zktest.OpRemoveWatches,
}

var unknownWays = map[string]zktest.UnknownOp{
	"unimplemented": zktest.UnknownUnimplemented, "bad arguments": zktest.UnknownBadArguments, "hang-up": zktest.UnknownHangUp,
}

// If a server lacks any operation, and however it refuses, an Acquire is granted, or fails with an error that gives the
// reason. The client does not retry in a tight loop.
func TestNoLivelockOnAnUnknownOperation(t *testing.T) {
	for i, dialect := range []zktest.Dialect{zktest.ZooKeeper34, zktest.ZooKeeper35, zktest.ZooKeeper38, zktest.ClickHouseKeeper} {
		for j, op := range sentOps {
			for way, how := range unknownWays {
				if testing.Short() && (i+j)%2 > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%s", dialect, op, way), func(t *testing.T) {
					testkit.Bubble(t, func(t *testing.T) { unknownOperation(t, dialect, op, how) })
				})
			}
		}
	}
}

func unknownOperation(t *testing.T, dialect zktest.Dialect, op zktest.Op, how zktest.UnknownOp) {
	t.Helper()
	srv := fixture.NewEnsemble(t, zktest.WithDialect(dialect), zktest.WithUnknownOps(how, append(dialect.Lacks(), op)...))
	srv.Put("/there", nil)
	holder, waiter := fixture.Connect(t, srv.Config(30*time.Second)), fixture.Connect(t, srv.Config(30*time.Second))
	span := time.Duration(testkit.Shorter(5, 1)) * time.Minute
	start := time.Now()
	var granted, failed atomic.Int32
	use := func(s *session.Session, dir string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		e, err := fixture.MutexOn(s, dir).Acquire(ctx)
		if err != nil {
			failed.Add(1)
			if op != zktest.OpDelete { // then the error is that of the holder's Leave
				assertNamed(t, op, err)
			}
			return
		}
		granted.Add(1)
		bubble.Pause(time.Second)
		if cause := context.Cause(e.Context()); cause != nil && !zkutil.IsAny(cause, zkutil.ErrSessionLost, zkutil.ErrSuspended, zkutil.ErrNodeDeleted) {
			t.Errorf("the lease has ended with %v", cause)
		}
		if err := e.Leave(); err == nil && op == zktest.OpDelete {
			t.Errorf("a server that lacks delete has deleted a znode")
		}
	}
	for time.Since(start) < span {
		done := make(chan struct{})
		go func() { // joined below
			defer close(done)
			use(waiter, "/a/b")
		}()
		use(holder, "/a/b")
		<-done
		use(holder, "/there")
		bubble.Pass(10 * time.Second)
	}
	t.Logf("granted %d, failed %d, requests %d, connects %d in %v", granted.Load(), failed.Load(), len(srv.Log.Requests()), len(srv.Log.Requests(zktest.OpConnect)), time.Since(start))
	require.Less(t, len(srv.Log.Requests()), 2000)
}

// assertNamed requires an error that names the missing operation, or has the server's own words.
func assertNamed(t *testing.T, op zktest.Op, err error) {
	t.Helper()
	if !errors.Is(err, zkutil.ErrUnsupported) && !errors.Is(err, zk.ErrBadArguments) {
		t.Errorf("a server that lacks %v: %v", op, err)
	}
}

// Deletions that were waiting for a connection share a test of it, if an earlier connection ended at a deletion.
func TestDeletionsShareATestOfTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithUnknownOps(zktest.UnknownHangUp, zktest.OpDelete))
		s := fixture.Connect(t, srv.Config(30*time.Second))
		var entries []*session.Entry
		for i := range 50 {
			e, err := fixture.MutexOn(s, fmt.Sprint("/", i)).Acquire(t.Context())
			require.NoError(t, err)
			entries = append(entries, e)
		}
		for _, e := range entries {
			e.BeginLeave()
		}
		bubble.Pass(2 * time.Second)
		srv.Stop(srv.Addr())
		bubble.Pass(5 * time.Second) // all deletions wait for a connection
		before := len(srv.Log.Requests())
		srv.Restart(srv.Addr())
		deletes := len(srv.Log.Requests(zktest.OpDelete))
		bubble.Eventually(t, 5*time.Second, func() bool { return len(srv.Log.Requests(zktest.OpDelete)) > deletes })
		tests := 0
		for _, r := range srv.Log.Requests()[before:] {
			if r.Op == zktest.OpDelete {
				break
			}
			if r.Op == zktest.OpExists {
				tests++
			}
		}
		require.LessOrEqual(t, tests, 10)
	})
}
