package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// envCoordinator names the socket of the coordinator to member processes.
const envCoordinator = "SUITES_COORDINATOR"

// coordinator has the ensembles of a suite. Each member process is connected to it for as long as its server runs.
type coordinator struct {
	listener net.Listener
	work     sync.WaitGroup

	mu        sync.Mutex // protects the fields below
	ensembles map[string]*zktest.Server
	members   map[net.Conn]struct{}
}

func newCoordinator(dir string) (*coordinator, error) {
	listener, err := net.Listen("unix", filepath.Join(dir, "coordinator"))
	if err != nil {
		return nil, err
	}
	c := &coordinator{listener: listener, ensembles: map[string]*zktest.Server{}, members: map[net.Conn]struct{}{}}
	c.work.Go(c.accept) // until close
	return c, nil
}

func (c *coordinator) address() string { return c.listener.Addr().String() }

func (c *coordinator) accept() {
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		c.mu.Lock()
		c.members[conn] = struct{}{}
		c.mu.Unlock()
		c.work.Go(func() { c.serve(conn) }) // until the member process ends, or close
	}
}

// serve runs the server of a member process until the process ends.
func (c *coordinator) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.members, conn)
	}()
	in := bufio.NewReader(conn)
	var cfg config
	if err := json.NewDecoder(in).Decode(&cfg); err != nil {
		return
	}
	server, err := c.ensemble(cfg)
	if err != nil {
		_, _ = fmt.Fprintln(conn, err)
		return
	}
	address := server.Addrs()[cfg.Index]
	if err := server.Restart(address); err != nil {
		_, _ = fmt.Fprintln(conn, err)
		return
	}
	defer server.Stop(address)
	if _, err := fmt.Fprintln(conn, address); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, in)
}

// ensemble returns the ensemble of a member, new ones with all servers stopped.
func (c *coordinator) ensemble(cfg config) (*zktest.Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if server := c.ensembles[cfg.Ensemble]; server != nil {
		return server, nil
	}
	opts := []zktest.Option{
		zktest.WithServers(cfg.Servers), zktest.WithTTLNodes(),
		zktest.WithTickTime(cfg.Tick), zktest.WithSessionTimeouts(2*cfg.Tick, 20*cfg.Tick), zktest.WithReapInterval(time.Minute),
	}
	if len(cfg.Users) > 0 {
		opts = append(opts, zktest.WithSASL(cfg.Users))
	}
	server, err := zktest.Start(opts...)
	if err != nil {
		return nil, err
	}
	server.Stop()
	c.ensembles[cfg.Ensemble] = server
	return server, nil
}

// close ends all member processes and ensembles.
func (c *coordinator) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	for conn := range c.members {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.work.Wait()
	for _, server := range c.ensembles {
		_ = server.Close()
	}
}
