package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A session waits for so many znodes with such long paths that their watches fill more than one frame of the server's
// limit, beyond which the server closes the connection. No audit exceeds the limit, each watch is audited even so,
// and after a reconnect each is set again.
func TestManyLongPaths(t *testing.T) {
	const timeout, many, length = 6 * time.Second, 70, 10 << 10
	require.Greater(t, 2*many*length, proto.MaxFrame)
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(timeout, srv.A)
		cfg.MaxBytes = 2 * many * length
		other := fixture.Connect(t, cfg)
		cfg.Servers, cfg.SuspendEnds = []string{srv.B}, true
		s := fixture.Connect(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		dirs := make([]string, many)
		holds, turns := map[string]*session.Entry{}, map[string]<-chan bubble.Outcome[*session.Entry]{}
		for i := range dirs {
			dirs[i] = fmt.Sprintf("/%d-%s", i, strings.Repeat("x", length))
			holds[dirs[i]] = bubble.Acquire(t, fixture.MutexOn(other, dirs[i]).Acquire)
			turns[dirs[i]] = bubble.Start(ctx, fixture.MutexOn(s, dirs[i]).Acquire)
			synctest.Wait()
		}
		beside := bubble.Acquire(t, fixture.MutexOn(s, "/beside").Acquire)
		bubble.Pass(10 * timeout)
		require.NoError(t, beside.Context().Err())
		require.Len(t, srv.Dialled(), 2, "no connection was lost")

		fixture.Untold(srv, func() { require.NoError(t, holds[dirs[0]].Leave()) })
		rounds := 2 * (2*many*length/session.MaxAuditedBytes + 2) // refusals and recent reads change the order
		bubble.Pass(time.Duration(rounds) * timeout / core.AuditsPerTimeout)
		require.NotEmpty(t, turns[dirs[0]], "audits see to each watch")
		require.NoError(t, (<-turns[dirs[0]]).Lease.Leave())
		require.NoError(t, beside.Context().Err())
		require.NoError(t, beside.Leave())

		srv.Stop(srv.B)
		synctest.Wait() // the client is refused
		refused := len(srv.Dialled())
		srv.Restart(srv.B)
		bubble.Pass(timeout)
		require.Len(t, srv.Dialled(), refused+1, "nor in setting the watches again")
		for _, dir := range dirs[1:] {
			start := time.Now()
			require.NoError(t, holds[dir].Leave())
			got := <-turns[dir]
			require.NoError(t, got.Err)
			require.Less(t, got.At.Sub(start), time.Second, "by a watch, not by an audit")
			require.NoError(t, got.Lease.Leave())
		}
		cancel()
	})
}
