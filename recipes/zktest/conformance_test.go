package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The golden transcripts were recorded by internal/conformance on a real ZooKeeper.
func TestConformance(t *testing.T) {
	t.Parallel() // because some cases wait in real time
	for _, kind := range []string{conformance.Extended, conformance.Plain, conformance.Reaping} {
		for name, reach := range map[string]func(*zktest.Server) conformance.Dial{"tcp": overTCP, "pipe": overPipe} {
			if kind == conformance.Reaping && name == "pipe" && testing.Short() {
				continue // because it waits for seconds, and the other kinds go through pipes, too
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				conformance.Run(t, kind, reach(likeReal(t, kind)))
			})
		}
	}
}

// likeReal starts a server with the limits of the real server.
func likeReal(t *testing.T, kind string) *zktest.Server {
	t.Helper()
	reap := time.Hour
	if kind == conformance.Reaping {
		reap = 100 * time.Millisecond
	}
	opts := []zktest.Option{zktest.WithSessionTimeouts(time.Second, time.Minute), zktest.WithReapInterval(reap)}
	if kind != conformance.Plain {
		opts = append(opts, zktest.WithTTLNodes())
	}
	return zktest.NewServer(t, opts...)
}

func overTCP(s *zktest.Server) conformance.Dial {
	return func() (net.Conn, error) { return net.Dial("tcp", s.Addr()) }
}

func overPipe(s *zktest.Server) conformance.Dial {
	return func() (net.Conn, error) { return s.Dialer()("tcp", s.Addr(), time.Second) }
}

// A difference between two identical servers would be a fault of the harness.
func TestDiffOfEqualServersFindsNothing(t *testing.T) {
	a, b := likeReal(t, conformance.Extended), likeReal(t, conformance.Extended)
	require.NoError(t, conformance.Diff(overTCP(a), overPipe(b), 1, testkit.Shorter(3000, 500)))
}
