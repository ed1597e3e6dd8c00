package conformance_test

import (
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/image"
	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

// start starts a fresh real server of a kind.
func start(t *testing.T, kind string) conformance.Dial {
	t.Helper()
	flags := []string{
		"-Dzookeeper.forceSync=no",
		// Only answers matter here, and their latency, so the compiler and handovers between threads must not
		// interfere.
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
	cfg := ensemble.Config{JVMFlags: flags, Private: true}
	if os.Getenv("ZK") != "" { // zktest and the transcripts are like a ZooKeeper 3.8: docs/servers.md says how others differ
		cfg.Suite = image.Oldest
	}
	return dial(ensemble.New(t, cfg).Server(0))
}

func dial(address string) conformance.Dial {
	return func() (net.Conn, error) { return net.DialTimeout("tcp", address, 10*time.Second) }
}
