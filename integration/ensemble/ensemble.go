package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// startTimeout bounds Start, apart from building or pulling an image.
const startTimeout = 90 * time.Second

// ErrExternal is returned by every fault on servers named by ZKRECIPES_SERVERS, because they belong to others.
var ErrExternal = errors.New("servers are external")

// Ensemble is a running set of ZooKeeper servers.
type Ensemble struct {
	engine   *engine
	network  *testcontainers.DockerNetwork // nil for one node
	nodes    []*node
	external []string // addresses from ZKRECIPES_SERVERS; then there is no container

	closeOnce sync.Once
	closeErr  error
}

// Start starts the servers side by side and returns once each of them takes clients and the quorum commits. On an error
// nothing is left behind. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Ensemble, error) {
	if servers := os.Getenv(envServers); servers != "" && cfg.ordinary() {
		return &Ensemble{external: strings.Split(servers, ",")}, nil
	}
	cfg = cfg.withDefaults()
	eng, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := eng.imageOf(ctx, cfg.Suite); err != nil { // before the timeout, because it may have to be built
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	e := &Ensemble{engine: eng}
	if err := e.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("ensemble: start: %w", err), e.Close())
	}
	return e, nil
}

func (e *Ensemble) start(ctx context.Context, cfg Config) error {
	if cfg.Nodes > 1 {
		nw, err := tcnetwork.New(ctx, tcnetwork.WithLabels(map[string]string{ownerLabel: self().String()}))
		if err != nil {
			return fmt.Errorf("network: %w", err)
		}
		e.network = nw
	}
	nodes := make([]*node, cfg.Nodes)
	errs := make([]error, cfg.Nodes)
	var starts sync.WaitGroup // each start ends with ctx; all are joined here
	for i := range nodes {
		starts.Go(func() { nodes[i], errs[i] = startNode(ctx, e.engine, cfg, i, e.network) })
	}
	starts.Wait()
	for _, n := range nodes {
		if n != nil {
			e.nodes = append(e.nodes, n)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return e.WaitServing(ctx)
}

// Servers returns the addresses of the client ports, one per node. They stay the same after a restart of a node.
func (e *Ensemble) Servers() []string {
	if e.external != nil {
		return append([]string(nil), e.external...)
	}
	servers := make([]string, len(e.nodes))
	for i, n := range e.nodes {
		servers[i] = n.server
	}
	return servers
}

// Server returns the address of node i's client port.
func (e *Ensemble) Server(i int) string { return e.Servers()[i] }

// SecureServers returns the addresses of the TLS client ports, where Config.Properties names a secureClientPort.
func (e *Ensemble) SecureServers() []string {
	var servers []string
	for _, n := range e.nodes {
		if n.secure != "" {
			servers = append(servers, n.secure)
		}
	}
	return servers
}

// Close removes the containers and their network. It may be called more than once.
func (e *Ensemble) Close() error {
	e.closeOnce.Do(func() { e.closeErr = e.close() })
	return e.closeErr
}

func (e *Ensemble) close() error {
	if e.external != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	errs := make([]error, len(e.nodes))
	var removals sync.WaitGroup // bounded by ctx, joined here
	for i, n := range e.nodes {
		removals.Go(func() {
			if n.is(paused) {
				_, err := e.engine.docker.ContainerUnpause(ctx, n.container.ID, client.ContainerUnpauseOptions{})
				errs[i] = ignoreMissing(err)
			}
			err := testcontainers.TerminateContainer(n.container, testcontainers.StopTimeout(0), testcontainers.StopContext(ctx))
			errs[i] = errors.Join(errs[i], err)
		})
	}
	removals.Wait()
	if e.network != nil {
		if err := e.network.Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("network: %w", err))
		}
	}
	// Idle connections to the engine would pass for leaked goroutines.
	errs = append(errs, e.engine.docker.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ensemble: close: %w", err)
	}
	return nil
}
