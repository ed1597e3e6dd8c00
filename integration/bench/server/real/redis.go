package real

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

const redisProgram = "redis-server"

// errNoQueue explains that a lock of Redis is a single key, for any number of waiters.
var errNoQueue = errors.New("real: Redis has no queue")

type redisServer struct{ *server.Program }

// NeedsRedis names what is missing on this machine, or returns nil.
func NeedsRedis() error {
	if _, err := exec.LookPath(redisProgram); err != nil {
		return fmt.Errorf("real: install redis-server: %w", err)
	}
	return nil
}

// StartRedis starts a server that writes nothing to its disk.
func StartRedis(ctx context.Context) (server.Server, error) {
	p, err := server.StartProgram(ctx, server.Launch{
		Name: "redis",
		Command: func(ctx context.Context, dir, port string) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, redisProgram, "--bind", server.Loopback, "--port", port, "--save", "", "--appendonly", "no", "--dir", dir), nil
		},
		Serves: func(ctx context.Context, address string) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	})
	if err != nil {
		return nil, err
	}
	return redisServer{p}, nil
}

func (r redisServer) Addr() string                                { return r.Address }
func (r redisServer) Queued(context.Context, string) (int, error) { return 0, errNoQueue }
func (r redisServer) Watches(context.Context) (int, error)        { return 0, nil }
