//go:build unix

package cli

import (
	"context"
	"math/rand/v2"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A signal right after the join of an election ends either the join or the wait after the join.
func TestSignalAtTheEndOfAJoin(t *testing.T) {
	srv := zktest.NewServer(t)
	defer signal.Reset()
	var requests, last atomic.Int32
	defer srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpConnect || r.Op == zktest.OpClose || r.Op == zktest.OpPing {
			return zktest.Fault{}
		}
		if n := requests.Add(1); n == last.Load() {
			time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) })
		}
		return zktest.Fault{}
	})()
	join := func() (*guard.Signals, error) {
		requests.Store(0)
		signals := guard.NewSignals()
		f := &electFlags{job: job{globals: &globals{servers: srv.Addr(), sessionTimeout: 30 * time.Second}, id: "a", path: "/election"}}
		client, _, err := f.join(signals)
		if err == nil {
			closeClient(client)
		}
		return signals, err
	}
	_, err := join()
	require.NoError(t, err)
	last.Store(requests.Load())
	require.NotZero(t, last.Load())
	for range 300 {
		signals, err := join()
		if err != nil {
			require.True(t, exit.IsSilent(err), "%v", err)
			continue
		}
		waiting, stop := signals.EndWait(context.Background())
		select {
		case <-waiting.Done():
		case <-time.After(10 * time.Second):
			require.Fail(t, "the signal is lost")
		}
		stop()
	}
}
