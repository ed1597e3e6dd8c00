package latch_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A dial that has timed out matches context.DeadlineExceeded. It is no end of the campaign: nobody's context has ended.
func TestLatchOutlivesDialsThatTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var dark atomic.Bool
		inner := srv.Dialer()
		client := testclient.Connect(t, srv, recipes.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			if !dark.Load() {
				return inner(network, address, timeout)
			}
			pause(timeout)
			return (&net.Dialer{Deadline: time.Unix(1, 0)}).Dial("tcp", "127.0.0.1:1") // what net returns after a timeout
		}))
		l, term := lead(t, client)
		dark.Store(true)
		srv.Disconnect(sessionOf(client))
		_ = ended(t, term)
		pass(time.Minute)
		dark.Store(false)
		pass(time.Minute)
		require.True(t, l.HasLeadership())
	})
}
