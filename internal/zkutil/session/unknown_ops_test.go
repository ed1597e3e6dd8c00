package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// sentOps are all operations that the engine sends, but for those of the handshake.
var sentOps = []zktest.Op{
	zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpExists, zktest.OpGetData,
	zktest.OpSetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpMulti, zktest.OpMultiRead, zktest.OpSetWatches, zktest.OpRemoveWatches,
}

var unknownWays = map[string]zktest.UnknownOp{
	"unimplemented": zktest.UnknownUnimplemented, "bad arguments": zktest.UnknownBadArguments, "hang-up": zktest.UnknownHangUp,
}

// Whatever operation a server lacks, and however it says so: an Acquire is granted, or fails with an error that says why. The client does
// not ask in a tight loop.
//
//nolint:gocognit // a table of four dimensions
func TestNoLivelockOnAnUnknownOperation(t *testing.T) {
	for i, dialect := range []zktest.Dialect{zktest.ZooKeeper34, zktest.ZooKeeper35, zktest.ZooKeeper38, zktest.ClickHouseKeeper} {
		for j, op := range sentOps {
			for way, how := range unknownWays {
				for k, kind := range []string{"own", "adopted"} {
					if testing.Short() && (i+j+k)%2 > 0 {
						continue
					}
					if dialect == zktest.ClickHouseKeeper && kind == "adopted" {
						continue // zk.Conn itself asks for its watches again, and is disconnected, forever
					}
					t.Run(fmt.Sprintf("%v/%v/%s/%s", dialect, op, way, kind), func(t *testing.T) {
						testkit.Bubble(t, func(t *testing.T) { unknownOperation(t, dialect, op, how, kind == "own") })
					})
				}
			}
		}
	}
}

func unknownOperation(t *testing.T, dialect zktest.Dialect, op zktest.Op, how zktest.UnknownOp, isOwn bool) {
	t.Helper()
	srv := fixture.NewEnsemble(t, zktest.WithDialect(dialect), zktest.WithUnknownOps(how, append(dialect.Lacks(), op)...))
	connect := func() *session.Session {
		if isOwn {
			return fixture.Connect(t, srv.Config(30*time.Second))
		}
		return adoptForUnknown(t, srv)
	}
	srv.Put("/there", nil)
	holder, waiter := connect(), connect()
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
		fixture.Pause(time.Second)
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
		fixture.Pass(10 * time.Second)
	}
	t.Logf("granted %d, failed %d, requests %d, connects %d in %v", granted.Load(), failed.Load(), len(srv.Log.Requests()), len(srv.Log.Requests(zktest.OpConnect)), time.Since(start))
	require.Less(t, len(srv.Log.Requests()), 2000)
}

// adoptForUnknown tracks a connection of the test. Close fails if the server deletes nothing.
func adoptForUnknown(t *testing.T, srv *fixture.Ensemble) *session.Session {
	t.Helper()
	conn, events, err := zk.Connect([]string{srv.A}, 30*time.Second, zk.WithDialer(srv.Dial), zk.WithLogInfo(false), zk.WithLogger(testkit.Quiet{}))
	require.NoError(t, err)
	synctest.Wait()
	srv.Delay(zktest.OpAny, 10*time.Millisecond) // an early answer could race with zk.Conn's setWatches
	cfg := srv.Config(30 * time.Second)
	cfg.Dialer = nil
	s := session.Adopt(conn, events, cfg)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			require.ErrorIs(t, err, zkutil.ErrNodeNotDeleted)
		}
		conn.Close()
	})
	return s
}

// assertNamed checks that an error says what is wrong: that the server lacks the operation, or the server's own words.
func assertNamed(t *testing.T, op zktest.Op, err error) {
	t.Helper()
	if !errors.Is(err, zkutil.ErrUnsupported) && !errors.Is(err, zk.ErrBadArguments) {
		t.Errorf("a server that lacks %v: %v", op, err)
	}
}
