package zkutil

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server that accepts the session and then cuts, as a proxy or a frame limit may
// do, is not dialled without a pause.
func TestNoReconnectStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		f.put("/node", "")
		_, err := s.watch(t.Context(), "/node")
		require.NoError(t, err)
		const limit = 500
		var dials atomic.Int64
		f.onRequest(func(r seen) fault {
			return fault{cut: r.op == opSetWatches && dials.Add(1) < limit}
		})
		f.drop()
		pass(10 * time.Second)
		require.Less(t, dials.Load(), int64(limit), "dials in ten seconds")
	})
}
