// Package real starts the servers under load: ZooKeeper, etcd and Redis, each as a process of this machine.
package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/integration/bench/server"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

const (
	// zooKeeperJar is Debian's. Its manifest names its dependencies, except a logger.
	zooKeeperJar  = "/usr/share/java/zookeeper.jar"
	zooKeeperJars = zooKeeperJar + ":/usr/share/java/slf4j-nop.jar"
	zooKeeperMain = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	zooKeeperCfg  = `tickTime=500
maxSessionTimeout=60000
dataDir=%s
clientPort=%s
clientPortAddress=` + server.Loopback + `
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
`
)

// NeedsZooKeeper names what is missing on this machine, or returns nil.
func NeedsZooKeeper() error {
	_, java := exec.LookPath("java")
	_, jar := os.Stat(zooKeeperJar)
	if err := errors.Join(java, jar); err != nil {
		return fmt.Errorf("real: install default-jdk-headless and libzookeeper-java: %w", err)
	}
	return nil
}

// errNoDisk says that fsync costs nothing where temporary files are.
var errNoDisk = errors.New("real: temporary files are in memory, so fsync costs nothing: set TMPDIR to a folder on a disk")

// NeedsDisk says whether fsync can be measured; nil when it can.
func NeedsDisk() error {
	var s unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &s); err != nil {
		return fmt.Errorf("real: %s: %w", os.TempDir(), err)
	}
	if int64(s.Type) == unix.TMPFS_MAGIC {
		return errNoDisk
	}
	return nil
}

// StartZooKeeper starts a server, which waits for its disk at each commit if waits is set.
func StartZooKeeper(ctx context.Context, fsync bool) (server.Server, error) {
	sync := "-Dzookeeper.forceSync=no"
	if fsync {
		sync = "-Dzookeeper.forceSync=yes"
	}
	p, err := server.StartProgram(ctx, server.Launch{
		Name: "zookeeper",
		Command: func(ctx context.Context, dir, port string) (*exec.Cmd, error) {
			cfg := filepath.Join(dir, "zoo.cfg")
			err := os.WriteFile(cfg, fmt.Appendf(nil, zooKeeperCfg, filepath.Join(dir, "data"), port), 0o600)
			return exec.CommandContext(ctx, "java", "-Xms1g", "-Xmx1g", sync, "-cp", zooKeeperJars, zooKeeperMain, cfg), err
		},
		Serves: func(ctx context.Context, address string) error {
			_, err := zkadmin.Mode(ctx, address)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return server.NewZooKeeper(p.Address, true, p.Close)
}
