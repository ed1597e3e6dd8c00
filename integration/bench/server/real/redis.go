package real

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

const redisProgram = "redis-server"

// redisStart is how long Redis may take until it listens.
const redisStart = 10 * time.Second

// errNoQueue says that a lock of Redis is one key, whoever waits for it.
var errNoQueue = errors.New("real: Redis has no queue")

type redisServer struct {
	cmd     *exec.Cmd
	address string
	dir     string
}

// NeedsRedis says what is missing on this machine; nil when nothing is.
func NeedsRedis() error {
	if _, err := exec.LookPath(redisProgram); err != nil {
		return fmt.Errorf("real: install redis-server: %w", err)
	}
	return nil
}

// StartRedis starts a server that writes nothing to its disk.
func StartRedis(ctx context.Context) (server.Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zkrecipes-bench-redis-")
	if err != nil {
		return nil, fmt.Errorf("real: %w", err)
	}
	cmd := exec.CommandContext(ctx, redisProgram, "--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("real: %w", err), os.RemoveAll(dir))
	}
	r := &redisServer{cmd: cmd, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	if err := r.awaitListening(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("real: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (r *redisServer) awaitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, redisStart, errors.New("real: Redis does not listen"))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("tcp", r.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *redisServer) Addr() string                                { return r.address }
func (r *redisServer) Queued(context.Context, string) (int, error) { return 0, errNoQueue }
func (r *redisServer) Watches(context.Context) (int, error)        { return 0, nil }

func (r *redisServer) Close() error {
	err := r.cmd.Process.Signal(os.Interrupt)
	_ = r.cmd.Wait() // its status says that it was interrupted
	return errors.Join(err, os.RemoveAll(r.dir))
}
