package session_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A proxy answers heartbeats by itself, also without its quorum. The hold ends 2T/3 after its create, and one warning gives
// the reason.
func TestUncommittedHeartbeatsProveNothing(t *testing.T) {
	const timeout = 12 * time.Second
	for name, hasQuorum := range map[string]bool{"with a quorum": true, "without a quorum": false} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.Zetcd), zktest.WithServers(3))
				var logged bytes.Buffer
				cfg := srv.Config(timeout)
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				s := fixture.Connect(t, cfg)
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				created := srv.LastWrite()
				if !hasQuorum {
					srv.Isolate(srv.A)
				}
				at, cause := bubble.Ended(t, e)
				require.ErrorIs(t, cause, zkutil.ErrSessionLost)
				require.Equal(t, created.Add(timeout*2/3), at)
				bubble.Pass(timeout)
				require.Equal(t, 1, strings.Count(logged.String(), "commits nothing"), logged.String())
				require.Contains(t, logged.String(), "server="+srv.A)
				srv.Heal()
			})
		})
	}
}

// Every write of any other server proves the session, after any earlier answers of the server.
func TestWritesThatAreCommittedProveTheSession(t *testing.T) {
	for _, dialect := range []zktest.Dialect{zktest.ZooKeeper34, zktest.ZooKeeper38, zktest.ZooKeeper39, zktest.ClickHouseKeeper} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t, zktest.WithDialect(dialect), zktest.WithServers(3))
			s, other := fixture.Connect(t, srv.Config(6*time.Second)), fixture.Connect(t, srv.Config(6*time.Second, srv.B))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			for range 10 {
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(other, "/n").Acquire).Leave())
				bubble.Pass(2500 * time.Millisecond)
			}
			require.NoError(t, e.Context().Err())
			require.NoError(t, e.Leave())
		})
	}
}

// A server that refuses a sync with NoNode does not report that the create before found no directory.
func TestRefusedSyncIsNoAnswerToACreate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(12*time.Second))
		srv.Put("/m", nil)
		srv.Once(zktest.OpCreate2, zktest.Fault{Lost: zktest.ReplyLost})
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpSync {
				return zktest.Fault{Refusal: zktest.RefuseNoNode}
			}
			return zktest.Fault{}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Len(t, srv.Children("/m"), 1)
		require.Equal(t, 1, srv.Log.Count(zktest.OpCreate2))
		require.NoError(t, e.Leave())
	})
}
