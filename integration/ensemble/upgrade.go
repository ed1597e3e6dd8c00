package ensemble

import (
	"context"
	"fmt"
	"io"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Upgrade stops node i in order and starts it again as the ZooKeeper of another Debian suite, at the address and with the
// data it had. Changes made with Configure are lost. Like StartNode it does not wait for the server to take clients.
func (e *Ensemble) Upgrade(ctx context.Context, i int, suite string) error {
	if e.external != nil {
		return fmt.Errorf("ensemble: upgrade: %w", ErrExternal)
	}
	if _, err := e.engine.imageOf(ctx, suite); err != nil {
		return err
	}
	if err := e.Stop(ctx, i); err != nil {
		return err
	}
	old := e.nodes[i]
	data, err := e.copyData(ctx, old)
	if err != nil {
		return fmt.Errorf("ensemble: upgrade node %d: copy data: %w", i, err)
	}
	if err := testcontainers.TerminateContainer(old.container, testcontainers.StopTimeout(0), testcontainers.StopContext(ctx)); err != nil {
		return fmt.Errorf("ensemble: upgrade node %d: %w", i, err)
	}
	cfg := old.cfg
	cfg.Suite = suite
	next, err := tryNode(ctx, e.engine, cfg, i, e.network, old.ports, data)
	if err != nil {
		return fmt.Errorf("ensemble: upgrade: %w", err)
	}
	old.become(next)
	return nil
}

// copyData returns a tar archive of a node's data directory.
func (e *Ensemble) copyData(ctx context.Context, n *node) ([]byte, error) {
	copied, err := e.engine.docker.CopyFromContainer(ctx, n.container.ID, client.CopyFromContainerOptions{SourcePath: dataDir})
	if err != nil {
		return nil, err
	}
	defer copied.Content.Close()
	return io.ReadAll(copied.Content)
}

// become takes over the container of next. Other methods must not run at the same time.
func (n *node) become(next *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.container, n.cfg, n.state = next.container, next.cfg, running
}
