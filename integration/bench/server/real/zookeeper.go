// Package real starts the servers under load: ZooKeeper in a container, etcd and Redis as processes.
package real

import (
	"context"

	"github.com/zkrecipes/zkrecipes/integration/bench/server"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// StartZooKeeper starts a server that waits for its disk at each commit, or does not.
func StartZooKeeper(ctx context.Context, fsync bool) (server.Server, error) {
	sync := "-Dzookeeper.forceSync=no"
	if fsync {
		sync = "-Dzookeeper.forceSync=yes"
	}
	e, err := ensemble.Start(ctx, ensemble.Config{JVMFlags: []string{"-Xms1g", "-Xmx1g", sync}, Private: true})
	if err != nil {
		return nil, err
	}
	return server.NewZooKeeper(e.Server(0), true, e.Close)
}
