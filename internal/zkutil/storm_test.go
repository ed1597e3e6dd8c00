package zkutil

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that accepts the session and then cuts, as a proxy or a frame limit may
// do, is not dialled without a pause.
func TestNoReconnectStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Put("/node", nil)
		_, err := s.watch(t.Context(), "/node")
		require.NoError(t, err)
		const limit = 500
		var dials atomic.Int64
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			return cut(r.Op == zktest.OpSetWatches && dials.Add(1) < limit, zktest.ReplyLost)
		})
		srv.Disconnect()
		pass(10 * time.Second)
		require.Less(t, dials.Load(), int64(limit), "dials in ten seconds")
	})
}
