package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A machine that was suspended some time ago: that counts for nobody who comes later.
func TestAdoptedAfterASuspension(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		conn, events, err := zk.Connect([]string{srv.A}, 6*time.Second, zk.WithDialer(srv.Dial), zk.WithLogInfo(false), zk.WithLogger(testkit.Quiet{}))
		require.NoError(t, err)
		synctest.Wait()
		cfg := srv.Config(6 * time.Second)
		cfg.Dialer, cfg.Suspended = nil, func() time.Duration { return time.Hour }
		s := session.Adopt(conn, events, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, e.Leave())
		require.NoError(t, s.Close())
		conn.Close()
	})
}
