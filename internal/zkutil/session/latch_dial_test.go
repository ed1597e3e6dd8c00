package session_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A dial that timed out matches context.DeadlineExceeded. It does not end the campaign, because no user context is
// over.
func TestLatchOutlivesDialsThatTimeOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var dark atomic.Bool
		inner := srv.Dialer()
		client := testclient.Connect(t, srv, recipes.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			if !dark.Load() {
				return inner(network, address, timeout)
			}
			bubble.Pause(timeout)
			return (&net.Dialer{Deadline: time.Unix(1, 0)}).Dial("tcp", "127.0.0.1:1") // what net returns after a timeout
		}))
		l, term := elections.Lead(t, client)
		dark.Store(true)
		srv.Disconnect(elections.SessionOf(client))
		_ = bubble.Cause(t, term)
		bubble.Pass(time.Minute)
		dark.Store(false)
		bubble.Pass(time.Minute)
		require.True(t, l.HasLeadership())
	})
}
