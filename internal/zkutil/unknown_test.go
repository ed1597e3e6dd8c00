package zkutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that executes a request just after it has ended the session may say that it does not know it (code -12, which
// zk.Conn has no name for): the attempt goes on in the session that follows.
func TestUnknownSessionIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		refusals := 0
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate && refusals == 0 {
				refusals++
				return zktest.Fault{Refusal: -12}
			}
			return zktest.Fault{}
		})
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 1, refusals)
		require.NoError(t, e.Leave())
	})
}
