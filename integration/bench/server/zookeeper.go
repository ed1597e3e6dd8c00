package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

const witnessTimeout = 30 * time.Second

// zooKeeper is a real server, or package zktest in a process of its own.
type zooKeeper struct {
	address string
	witness *zk.Conn
	counted bool // whether the server reports its watches
	stop    func() error
}

// StartZKTest starts package zktest in a process of its own.
func StartZKTest(ctx context.Context) (Server, error) {
	p, err := StartProcess(ctx, RoleZKTest)
	if err != nil {
		return nil, err
	}
	return NewZooKeeper(p.Address, false, p.Close)
}

// quiet is a logger that drops the output of zk.Conn.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// NewZooKeeper returns a running server; stop ends it. A real one counts its watches, package zktest does not.
func NewZooKeeper(address string, isReal bool, stop func() error) (Server, error) {
	witness, _, err := zk.Connect([]string{address}, witnessTimeout, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &zooKeeper{address: address, witness: witness, counted: isReal, stop: stop}, nil
}

func (z *zooKeeper) Addr() string { return z.address }

func (z *zooKeeper) Queued(_ context.Context, path string) (int, error) {
	_, stat, err := z.witness.Exists(path)
	if err != nil {
		return 0, fmt.Errorf("server: exists %s: %w", path, err)
	}
	return int(stat.NumChildren), nil
}

// Watches reads the sum at the end of what the server says: "Total watches:12".
func (z *zooKeeper) Watches(ctx context.Context) (int, error) {
	if !z.counted {
		return 0, nil
	}
	answer, err := zkadmin.FourLetter(ctx, z.address, "wchs")
	if err != nil {
		return 0, err
	}
	var connections, paths, watches int
	if _, err := fmt.Sscanf(answer, "%d connections watching %d paths\nTotal watches:%d", &connections, &paths, &watches); err != nil {
		return 0, fmt.Errorf("server: wchs: %w in %q", err, answer)
	}
	return watches, nil
}

func (z *zooKeeper) Close() error {
	z.witness.Close()
	return z.stop()
}
