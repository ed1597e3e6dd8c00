package zkutil

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A session with so many waits for znodes of such long paths that their watches fill more
// than one frame of the server's limit, which it answers with a closed connection: no audit
// exceeds that, each watch is audited all the same, and after a reconnect each is set again.
func TestManyLongPaths(t *testing.T) {
	const timeout, many, length = 6 * time.Second, 70, 10 << 10
	require.Greater(t, 2*many*length, proto.MaxFrame)
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other := connect(t, srv.config(timeout, srv.a))
		cfg := srv.config(timeout, srv.b)
		cfg.SuspendEnds = true
		s := connect(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		dirs := make([]string, many)
		holds, turns := map[string]*Entry{}, map[string]<-chan granted{}
		for i := range dirs {
			dirs[i] = fmt.Sprintf("/%d-%s", i, strings.Repeat("x", length))
			holds[dirs[i]] = acquire(t, mutexOn(other, dirs[i]))
			turns[dirs[i]] = acquireLater(ctx, mutexOn(s, dirs[i]))
			synctest.Wait()
		}
		beside := acquire(t, mutexOn(s, "/beside"))
		pass(10 * timeout)
		require.NoError(t, beside.Context().Err())
		require.Len(t, srv.dialled(), 2, "no connection was lost")

		untold(srv, func() { require.NoError(t, holds[dirs[0]].Leave()) })
		rounds := 2 * (2*many*length/maxAuditedBytes + 2) // what was refused and what has just been seen shift the order
		pass(time.Duration(rounds) * timeout / auditsPerTimeout)
		require.NotEmpty(t, turns[dirs[0]], "audits see to each watch")
		require.NoError(t, (<-turns[dirs[0]]).entry.Leave())
		require.NoError(t, beside.Context().Err())
		require.NoError(t, beside.Leave())

		srv.Stop(srv.b)
		synctest.Wait() // the client is refused
		refused := len(srv.dialled())
		srv.Restart(srv.b)
		pass(timeout)
		require.Len(t, srv.dialled(), refused+1, "nor in setting the watches again")
		require.Greater(t, len(srv.log.Requests(zktest.OpSetWatches)), 1)
		for _, dir := range dirs[1:] {
			start := time.Now()
			require.NoError(t, holds[dir].Leave())
			got := <-turns[dir]
			require.NoError(t, got.err)
			require.Less(t, got.at.Sub(start), time.Second, "by a watch, not by an audit")
			require.NoError(t, got.entry.Leave())
		}
		cancel()
	})
}
