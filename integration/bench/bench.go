package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/zkrecipes/zkrecipes/integration/bench/java"
	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
	"github.com/zkrecipes/zkrecipes/integration/bench/server/real"
)

const (
	// warmUp is how many pairs a JVM does alone before it is measured for the first time. It does half as many in a contest.
	warmUp = 6000
	// warmHandovers is how many elections a JVM hands over beforehand if it is the only one, as in the cases with a latch.
	warmHandovers = 2000
	// serverWarmUp is how many pairs a ZooKeeper answers before anything is measured, on so many sessions.
	serverWarmUp, serverSessions = 30_000, 8
	// heapAlone is the heap of a JVM without others, heapShared the most that each of eight may have, in megabytes.
	heapAlone, heapShared = 2048, 384
)

// bench has the servers and the processes of a run. Both are started when first needed, and stay warm until close.
type bench struct {
	servers map[serverKey]server.Server
	crews   map[crewKey]*load.Crew
	dir     string
	jvm     func(flags ...string) *exec.Cmd
}

const zooKeeper = "zookeeper"

type serverKey struct {
	kind  string
	fsync bool
}

type crewKey struct {
	peer      string
	processes int
}

// newBench returns a bench that has to be closed.
func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "zkrecipes-bench-java-")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &bench{servers: map[serverKey]server.Server{}, crews: map[crewKey]*load.Crew{}, dir: dir}, nil
}

// close ends all processes and servers.
func (b *bench) close() error {
	var errs []error
	for _, c := range b.crews {
		errs = append(errs, c.Close())
	}
	for _, s := range b.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// server returns the server that a peer needs.
func (b *bench) server(ctx context.Context, name string, fsync bool) (server.Server, error) {
	key := serverKey{zooKeeper, fsync}
	start := func() (server.Server, error) { return real.StartZooKeeper(ctx, fsync) }
	switch name {
	case peer.Etcd:
		key.kind = "etcd"
		start = func() (server.Server, error) { return real.StartEtcd(ctx, fsync) }
	case peer.Redsync:
		key = serverKey{"redis", false}
		start = func() (server.Server, error) { return real.StartRedis(ctx) }
	}
	if s := b.servers[key]; s != nil {
		return s, nil
	}
	s, err := start()
	if err != nil {
		return nil, err
	}
	b.servers[key] = s
	if key.kind != zooKeeper {
		return s, nil
	}
	return s, b.warmServer(ctx, s)
}

// warmServer has a ZooKeeper answer until its code is compiled.
func (b *bench) warmServer(ctx context.Context, s server.Server) error {
	c, err := b.crew(ctx, peer.ZKLock, 1)
	if err != nil {
		return err
	}
	if err := c.Open(s.Addr(), serverSessions); err != nil {
		return err
	}
	_, err = c.Loop(load.Load{Path: "/warm-server", Locks: serverSessions, Contenders: serverSessions, Pairs: serverWarmUp})
	return errors.Join(err, c.CloseSessions())
}

// crew returns the processes of a peer.
func (b *bench) crew(ctx context.Context, name string, processes int) (*load.Crew, error) {
	key := crewKey{name, processes}
	if c := b.crews[key]; c != nil {
		return c, nil
	}
	command, err := b.command(ctx, name, processes)
	if err != nil {
		return nil, err
	}
	c, err := load.Start(name, processes, command)
	if err != nil {
		return nil, err
	}
	b.crews[key] = c
	if name != peer.Curator {
		return c, nil
	}
	return c, b.warm(ctx, c)
}

func (b *bench) command(ctx context.Context, name string, processes int) (func() (*exec.Cmd, error), error) {
	if name != peer.Curator {
		return runner.Worker(ctx, name), nil
	}
	if b.jvm == nil {
		jvm, err := java.Compile(ctx, b.dir)
		if err != nil {
			return nil, err
		}
		b.jvm = jvm
	}
	// Memory is measured only in a JVM without other load. Its heap has a fixed size and is touched at the start, so that free
	// heap is known to be resident.
	flags := []string{fmt.Sprintf("-Xms%dm", heapAlone), fmt.Sprintf("-Xmx%dm", heapAlone), "-XX:+AlwaysPreTouch"}
	if processes > 1 {
		flags = []string{"-Xms128m", fmt.Sprintf("-Xmx%dm", heapShared)}
	}
	return func() (*exec.Cmd, error) { return b.jvm(flags...), nil }, nil
}

// warm has each JVM lock and unlock until its code is compiled: alone, and with contenders. One JVM alone hands an election over
// as well.
func (b *bench) warm(ctx context.Context, c *load.Crew) error {
	s, err := b.server(ctx, c.Name, false)
	if err != nil {
		return err
	}
	if err := c.Open(s.Addr(), max(2, c.Size())); err != nil {
		return err
	}
	loads := []load.Load{
		{Path: "/warm", Locks: c.Size(), Contenders: c.Size(), Pairs: warmUp * c.Size()},
		{Path: "/warm", Locks: 1, Contenders: 8 * c.Size(), Pairs: warmUp / 2 * c.Size()},
	}
	for _, l := range loads {
		if _, err := c.Loop(l); err != nil {
			return err
		}
	}
	if c.Size() == 1 {
		if _, err := c.Latch("/warm-latch", warmHandovers, 0); err != nil {
			return err
		}
	}
	return c.CloseSessions()
}

// enter makes the stage of each peer of a case.
func (b *bench) enter(ctx context.Context, c runner.Case) ([]runner.Stage, error) {
	var stages []runner.Stage
	for _, name := range c.Peers {
		srv, err := b.server(ctx, name, c.Fsync)
		if err != nil {
			return nil, err
		}
		crew, err := b.crew(ctx, name, c.Processes)
		if err != nil {
			return nil, err
		}
		stages = append(stages, runner.NewStage(c, crew, srv))
	}
	return stages, nil
}

// needs names what this machine lacks for a case, or returns nil.
func needs(c runner.Case) error {
	var errs []error
	if c.Fsync {
		errs = append(errs, real.NeedsDisk())
	}
	for _, name := range c.Peers {
		switch name {
		case peer.Etcd:
		case peer.Redsync:
			errs = append(errs, real.NeedsRedis())
		case peer.Curator:
			errs = append(errs, java.Needs(), real.NeedsZooKeeper())
		default:
			errs = append(errs, real.NeedsZooKeeper())
		}
	}
	return errors.Join(errs...)
}
