package recipes_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server grants the session of a holder a shorter timeout, and the login on this connection fails. From then on no server
// accepts the holder.
func TestShorterTimeoutCountsThoughTheLoginFails(t *testing.T) {
	const timeout = 24 * time.Second
	for _, shorter := range []time.Duration{3 * time.Second, 8 * time.Second, 16 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			server := annsServer(t, zktest.WithServers(2), zktest.WithTickTime(10*time.Millisecond))
			options := []recipes.Option{recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recipes.WithSessionTimeout(timeout)}
			holder, err := connectAs(t, server, options...)
			require.NoError(t, err)
			next, err := connectAs(t, server, options...)
			require.NoError(t, err)
			lease := acquireAt(t, holder, "/m")
			id, other := holder.Conn().SessionID(), server.Addrs()[0]
			if holder.Conn().Server() == other {
				other = server.Addrs()[1]
			}
			server.SetSessionTimeouts(time.Second, shorter, other)
			var hasFailed atomic.Bool
			server.Inject(func(r zktest.Request) zktest.Fault {
				switch {
				case r.Op == zktest.OpSASL && r.Session == id && r.Server == other && hasFailed.CompareAndSwap(false, true):
					return zktest.Fault{Lost: zktest.ReplyLost}
				case r.Op == zktest.OpConnect && r.Session == id && (hasFailed.Load() || r.Server != other):
					return zktest.Fault{Lost: zktest.RequestLost}
				}
				return zktest.Fault{}
			})
			granted := make(chan time.Time, 1)
			lock, err := mutex.New(next, "/m")
			require.NoError(t, err)
			go func() { // ends with the grant; joined below
				if l, err := lock.Acquire(t.Context()); err == nil {
					granted <- time.Now()
					_ = l.Release()
				}
			}()
			server.Disconnect(id)
			<-lease.Context().Done()
			ended := time.Now()
			require.True(t, hasFailed.Load())
			at := <-granted
			require.True(t, ended.Before(at), "two holders for %v", ended.Sub(at))
		})
	}
}
