package conformance_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

// start starts a real server of a kind, which nobody has used yet.
func start(t *testing.T, kind string) conformance.Dial {
	t.Helper()
	flags := []string{
		"-Dzookeeper.forceSync=no",
		// It is answering that matters here, and how soon: no compiler and no hand-over
		// between threads may be in the way.
		"-XX:TieredStopAtLevel=1",
		"-Dzookeeper.nio.numSelectorThreads=1",
		"-Dzookeeper.nio.numWorkerThreads=0",
	}
	reapInterval := "86400000"
	if kind == conformance.Reaping {
		reapInterval = "100"
	}
	flags = append(flags, "-Dznode.container.checkIntervalMs="+reapInterval)
	if kind != conformance.Plain {
		flags = append(flags, "-Dzookeeper.extendedTypesEnabled=true")
	}
	return dial(ensemble.New(t, ensemble.Config{JVMFlags: flags, Private: true}).Server(0))
}

func dial(address string) conformance.Dial {
	return func() (net.Conn, error) { return net.DialTimeout("tcp", address, 10*time.Second) }
}
