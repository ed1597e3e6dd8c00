package interop_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// workerVariable makes this binary, run again, a peer in Go that can be killed and paused.
const workerVariable = "ZKRECIPES_TEST_WORKER"

func startWorker(t *testing.T, servers []string, sessionTimeout time.Duration) *agent.Process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, strings.Join(servers, ","), strconv.FormatInt(sessionTimeout.Milliseconds(), 10)) //nolint:noctx // ends with its input
	cmd.Env = append(os.Environ(), workerVariable+"=go")
	return agent.Start(t, cmd)
}

func serveAsWorker() {
	timeout, _ := strconv.Atoi(os.Args[2])
	w := &worker{
		servers: strings.Split(os.Args[1], ","), timeout: time.Duration(timeout) * time.Millisecond,
		clients: map[string]*recipes.Client{}, locks: map[string]*mutex.InterProcessMutex{}, leases: map[string]*recipes.Lease{},
	}
	agent.Serve(os.Stdin, os.Stdout, w.run)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, client := range w.clients {
		client.Close()
	}
}

// worker knows the commands of the other peers that TestFaults needs.
type worker struct {
	servers []string
	timeout time.Duration

	mu      sync.Mutex // guards what follows
	clients map[string]*recipes.Client
	locks   map[string]*mutex.InterProcessMutex
	leases  map[string]*recipes.Lease
}

func (w *worker) run(command []string) ([]string, error) {
	ctx, name := context.Background(), command[1]
	switch command[0] {
	case "connect":
		client, err := recipes.Connect(ctx, w.servers, recipes.WithSessionTimeout(w.timeout))
		return nil, keep(w, w.clients, name, client, err)
	case "mutex":
		lock, err := mutex.New(take(w, w.clients, command[2]), command[3], mutex.WithID(command[4]))
		return nil, keep(w, w.locks, name, lock, err)
	case "acquire":
		lease, err := take(w, w.locks, name).Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return []string{lease.Path()}, keep(w, w.leases, name, lease, nil)
	case "release":
		return nil, take(w, w.leases, name).Release()
	case "ended": // waits until the lease has, and says why
		<-take(w, w.leases, name).Context().Done()
		return []string{context.Cause(take(w, w.leases, name).Context()).Error()}, nil
	}
	return nil, fmt.Errorf("unknown command %q", command[0])
}

func keep[V any](w *worker, values map[string]V, name string, value V, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		values[name] = value
	}
	return err
}

func take[V any](w *worker, values map[string]V, name string) V {
	w.mu.Lock()
	defer w.mu.Unlock()
	return values[name]
}
