package ensemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// node is one server in its container. Its addresses never change, so that a client finds it after a restart.
type node struct {
	container *testcontainers.DockerContainer
	server    string // client port on this host
	secure    string // secureClientPort on this host, if configured
	cfg       Config
	ports     []string // on this host

	mu    sync.Mutex
	state state // guarded by mu
}

// state is what the tests last did to a node.
type state int

const (
	running state = iota
	paused
	down
)

// Ports are published from a range below the kernel's own choices for outgoing connections: one of those could otherwise
// take a node's port while the node is down.
const (
	firstPort = 20000
	lastPort  = 30000
	// portTries bounds the attempts to start with another port, because the engine finds out late that a port is
	// taken.
	portTries = 5
)

// startNode creates and starts node i.
func startNode(ctx context.Context, e *engine, cfg Config, i int, nw *testcontainers.DockerNetwork) (*node, error) {
	for try := 1; ; try++ {
		n, err := tryNode(ctx, e, cfg, i, nw, nil, nil)
		if err == nil || try == portTries || !portTaken(err) {
			return n, err
		}
	}
}

// tryNode starts node i on the given ports, or on free ones, with a tar archive of its data directory, or without data.
func tryNode(ctx context.Context, e *engine, cfg Config, i int, nw *testcontainers.DockerNetwork, ports []string, data []byte) (*node, error) {
	inside := []string{strconv.Itoa(clientPort)}
	if port := cfg.Properties["secureClientPort"]; port != "" {
		inside = append(inside, port)
	}
	outside := make([]string, len(inside))
	bindings := network.PortMap{}
	for k, port := range inside {
		p, err := network.ParsePort(port + "/tcp")
		if err != nil {
			return nil, fmt.Errorf("port %q: %w", port, err)
		}
		if outside[k] = freePort(); ports != nil {
			outside[k] = ports[k]
		}
		bindings[p] = []network.PortBinding{{HostIP: e.publishOn(), HostPort: outside[k]}}
	}
	files := []testcontainers.ContainerFile{
		file(configPath, cfg.zooCfg()),
		file(dataDir+"/myid", []byte(strconv.Itoa(i+1))),
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Files)) {
		files = append(files, file(name, cfg.Files[name]))
	}
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(map[string]string{"JVMFLAGS": cfg.jvmFlags(), "ZK_SERVER_HEAP": "256", "ZOO_MY_ID": strconv.Itoa(i + 1)}),
		testcontainers.WithEnv(cfg.Env),
		testcontainers.WithLabels(map[string]string{ownerLabel: self().String()}),
		testcontainers.WithFiles(files...),
		testcontainers.WithExposedPorts(inside...),
		testcontainers.WithLogger(tclog.NewNoopLogger()),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
			host.PortBindings = bindings
			host.CapAdd = append(host.CapAdd, "NET_ADMIN")
		}),
	}
	if nw != nil {
		options = append(options, tcnetwork.WithNetwork([]string{alias(i)}, nw))
	}
	if data != nil {
		options = append(options, testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{
			PostCreates: []testcontainers.ContainerHook{func(ctx context.Context, c testcontainers.Container) error {
				_, err := e.docker.CopyToContainer(ctx, c.GetContainerID(), client.CopyToContainerOptions{
					DestinationPath: path.Dir(dataDir), Content: bytes.NewReader(data),
				})
				return err
			}},
		}))
	}
	name, err := e.imageOf(ctx, cfg.Suite)
	if err != nil {
		return nil, err
	}
	c, err := testcontainers.Run(ctx, name, options...)
	if err != nil {
		// Not ctx, because the container must be removed even if the caller no longer waits.
		return nil, errors.Join(fmt.Errorf("node %d: %w", i, err), testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)))
	}
	n := &node{container: c, server: net.JoinHostPort(e.host, outside[0]), cfg: cfg, ports: outside}
	if len(outside) > 1 {
		n.secure = net.JoinHostPort(e.host, outside[1])
	}
	return n, nil
}

func file(path string, content []byte) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{Reader: bytes.NewReader(content), ContainerFilePath: path, FileMode: 0o644}
}

// freePort returns a port without a listener at the moment.
func freePort() string {
	for {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		if l, err := net.Listen("tcp", ":"+port); err == nil {
			l.Close()
			return port
		}
	}
}

func portTaken(err error) bool {
	return strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")
}

func (n *node) setState(s state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
}

func (n *node) is(s state) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == s
}
