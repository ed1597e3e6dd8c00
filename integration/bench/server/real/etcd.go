package real

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// RoleEtcd is the role of an etcd process. Its arguments are a folder, and whether etcd waits for its disk.
const RoleEtcd = "etcd"

const (
	fsyncOn  = "fsync"
	fsyncOff = "no fsync"
)

type etcd struct {
	process *server.Process
	client  *clientv3.Client
	dir     string
}

// StartEtcd starts a server, which waits for its disk at each commit if waits is set.
func StartEtcd(ctx context.Context, fsync bool) (server.Server, error) {
	dir, err := os.MkdirTemp("", "zkrecipes-bench-etcd-")
	if err != nil {
		return nil, fmt.Errorf("real: %w", err)
	}
	mode := fsyncOff
	if fsync {
		mode = fsyncOn
	}
	p, err := server.StartProcess(ctx, RoleEtcd, dir, mode)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Address}, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, p.Close(), os.RemoveAll(dir))
	}
	return &etcd{process: p, client: client, dir: dir}, nil
}

// ServeEtcd makes this process an etcd of one member until its input ends. The member's address for peers is unused.
func ServeEtcd(ctx context.Context, role []string) error {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(role[1], "data")
	cfg.LogLevel = "fatal" // the error that ends the server is returned; its log repeats it as an error, too
	cfg.UnsafeNoFsync = role[2] == fsyncOff
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{anyPort}, []url.URL{anyPort}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("real: etcd: %w", err)
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return fmt.Errorf("real: etcd: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return server.Announce(e.Clients[0].Addr().String())
}

func (e *etcd) Addr() string { return e.process.Address }

func (e *etcd) Queued(ctx context.Context, path string) (int, error) {
	answer, err := e.client.Get(ctx, path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("real: etcd: %w", err)
	}
	return int(answer.Count), nil
}

func (e *etcd) Watches(context.Context) (int, error) { return 0, nil }

func (e *etcd) Close() error {
	return errors.Join(e.client.Close(), e.process.Close(), os.RemoveAll(e.dir))
}
