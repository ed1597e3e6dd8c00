package ensemble

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

const (
	pollInterval = 50 * time.Millisecond
	// askTimeout bounds one question to one node, because a paused node never answers.
	askTimeout = time.Second
)

// Mode returns node i's own mode: "leader", "follower" or "standalone". While it serves no clients, the error is
// zkadmin.ErrNotServing or a network error.
func (e *Ensemble) Mode(ctx context.Context, i int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return zkadmin.Mode(ctx, e.Server(i))
}

// Leader waits until exactly one node leads and, with it, a majority serves. It returns the leader's number. A node that
// lost its followers calls itself leader until it notices, so Leader may return it while that majority still counts it.
func (e *Ensemble) Leader(ctx context.Context) (int, error) {
	leader := -1
	err := poll(ctx, func() error {
		modes := e.modes(ctx)
		leader = -1
		serving := 0
		for i, mode := range modes {
			if mode != "" {
				serving++
			}
			if mode == "leader" || mode == "standalone" {
				if leader >= 0 && e.external == nil {
					return errors.New("two leaders")
				}
				leader = i
			}
		}
		if leader < 0 || serving <= len(modes)/2 {
			return errors.New("no leader")
		}
		return nil
	})
	if err != nil {
		return -1, fmt.Errorf("ensemble: leader: %w", err)
	}
	return leader, nil
}

// WaitServing waits until each of the given nodes, or by default each running node, serves clients and committed the
// opening and closing of a session.
func (e *Ensemble) WaitServing(ctx context.Context, nodes ...int) error {
	if len(nodes) == 0 {
		for i := range e.Servers() {
			if e.external != nil || e.nodes[i].is(running) {
				nodes = append(nodes, i)
			}
		}
	}
	errs := make([]error, len(nodes))
	var waits sync.WaitGroup // bounded by ctx, joined here
	for k, i := range nodes {
		waits.Go(func() { errs[k] = e.waitNode(ctx, i) })
	}
	waits.Wait()
	return errors.Join(errs...)
}

func (e *Ensemble) waitNode(ctx context.Context, i int) error {
	err := poll(ctx, func() error {
		if _, err := e.Mode(ctx, i); err != nil {
			return err
		}
		return zkadmin.Handshake(ctx, e.Server(i))
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("node %d: %w", i, err)
	if e.external == nil {
		err = fmt.Errorf("%w; its log ends:\n%s", err, e.nodes[i].logEnd())
	}
	return err
}

// modes asks all nodes at once; "" means that a node serves no clients.
func (e *Ensemble) modes(ctx context.Context) []string {
	modes := make([]string, len(e.Servers()))
	var asks sync.WaitGroup // bounded by askTimeout, joined here
	for i := range modes {
		asks.Go(func() { modes[i], _ = e.Mode(ctx, i) })
	}
	asks.Wait()
	return modes
}

// poll repeats try until it succeeds. If ctx ends first, the error is that of the last try and of ctx.
func poll(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
