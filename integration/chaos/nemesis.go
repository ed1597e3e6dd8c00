package chaos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// Nemesis harms servers and clients, each with its own choice of faults from one seed.
type Nemesis struct {
	servers *ensemble.Ensemble
	clients []*client
	admin   *zk.Conn // whose line is never harmed
	timeout time.Duration

	mu     sync.Mutex
	faults []Fault
}

// note records a fault, and returns what records its end.
func (n *Nemesis) note(kind string, proc int, znode string) (end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := len(n.faults)
	n.faults = append(n.faults, Fault{Kind: kind, Proc: proc, Znode: znode, From: Now()})
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.faults[i].To = Now()
	}
}

// span is between a tenth and three times the session timeout, short ones being more likely.
func (n *Nemesis) span(r *rand.Rand) time.Duration {
	x := r.Float64()
	return time.Duration((0.1 + 2.9*x*x) * float64(n.timeout))
}

// pause waits, or until the end of ctx.
func pause(ctx context.Context, d time.Duration) { linger(d, ctx.Done()) }

// harmClients goes on until ctx ends, one fault at a time, and leaves everything whole.
func (n *Nemesis) harmClients(ctx context.Context, r *rand.Rand, clients []*client) {
	for ctx.Err() == nil {
		kind := clientFaults[r.IntN(len(clientFaults))]
		c := clients[r.IntN(len(clients))]
		end := func() {}
		if kind.name != deleteZnode { // that one has a path to tell
			end = n.note(kind.name, c.proc, "")
		}
		kind.do(ctx, n, r, c)
		end()
		pause(ctx, time.Duration(r.Int64N(int64(n.timeout)/4)))
	}
}

var clientFaults = []struct {
	name string
	do   func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client)
}{
	{pauseClient, func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) {
		c.pause()
		pause(ctx, n.span(r))
		c.proceed()
	}},
	{"silent line to all servers", held((*faultproxy.Proxy).Hold, 3)},
	{"silent line to one server", held((*faultproxy.Proxy).Hold, 1)},
	{"client not heard", held((*faultproxy.Proxy).HoldUp, 3)},
	{"servers not heard", held((*faultproxy.Proxy).HoldDown, 3)},
	{"slow line", func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) {
		d := time.Duration(r.Int64N(int64(n.timeout) / 20))
		for _, line := range c.lines {
			line.Delay(d)
		}
		pause(ctx, n.span(r))
		c.release()
	}},
	{"connection cut", func(_ context.Context, _ *Nemesis, _ *rand.Rand, c *client) {
		for _, line := range c.lines {
			line.Cut()
		}
	}},
	{"connection refused", func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) {
		for _, line := range c.lines {
			line.Refuse(true)
			line.Cut()
		}
		pause(ctx, n.span(r))
		c.release()
	}},
	{expireSession, func(ctx context.Context, n *Nemesis, _ *rand.Rand, c *client) {
		ctx, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		for _, line := range c.lines {
			_ = line.ExpireSessions(ctx) // no server, or no session: nothing happens
		}
	}},
	{"answer lost", dropping((*faultproxy.Proxy).DropReply)},
	{"request lost", dropping((*faultproxy.Proxy).DropRequest)},
	{deleteZnode, deleteHolder},
}

// held keeps some of a client's lines silent.
func held(hold func(*faultproxy.Proxy), lines int) func(context.Context, *Nemesis, *rand.Rand, *client) {
	return func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) {
		for _, i := range r.Perm(len(c.lines))[:lines] {
			hold(c.lines[i])
		}
		pause(ctx, n.span(r))
		c.release()
	}
}

// dropping loses some messages of one kind on every line of a client, with their connections.
func dropping(drop func(*faultproxy.Proxy, faultproxy.Match, int) *faultproxy.Rule) func(context.Context, *Nemesis, *rand.Rand, *client) {
	matches := []faultproxy.Match{
		faultproxy.Creates(), faultproxy.Op("delete"), faultproxy.Op("getData"), faultproxy.Op("getChildren2"),
		faultproxy.Op("getChildren"), faultproxy.Op("multi"), faultproxy.Op("setWatches"), faultproxy.Any(),
	}
	return func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) {
		match := matches[r.IntN(len(matches))]
		times := 1 + r.IntN(3)
		var rules []*faultproxy.Rule
		for _, line := range c.lines {
			rules = append(rules, drop(line, match, times))
		}
		pause(ctx, n.span(r)/3)
		for _, rule := range rules {
			rule.Remove()
		}
	}
}

// deleteHolder takes away the znode of whoever is first in a queue.
func deleteHolder(_ context.Context, n *Nemesis, r *rand.Rand, _ *client) {
	dir := paths[r.IntN(len(paths))]
	names, _, err := n.admin.Children(dir)
	if err != nil || len(names) == 0 {
		return
	}
	first := slices.MinFunc(names, func(a, b string) int {
		const digits = 10
		return cmp.Compare(a[max(0, len(a)-digits):], b[max(0, len(b)-digits):])
	})
	end := n.note(deleteZnode, 0, dir+"/"+first)
	_ = n.admin.Delete(dir+"/"+first, -1) // its owner may have been quicker
	end()
}

// harmServers goes on until ctx ends, one fault at a time, and leaves everything whole.
func (n *Nemesis) harmServers(ctx context.Context, r *rand.Rand) error {
	whole := context.WithoutCancel(ctx) // what was begun is ended
	for ctx.Err() == nil {
		kind := serverFaults[r.IntN(len(serverFaults))]
		end := n.note(kind.name, 0, "")
		err := kind.do(ctx, whole, n, r)
		if err == nil {
			err = n.servers.WaitServing(whole)
		}
		end()
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(r.Int64N(int64(n.timeout))))
	}
	return nil
}

var serverFaults = []struct {
	name string
	do   func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error
}{
	{"server killed", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		return n.restart(ctx, whole, r, r.IntN(len(n.servers.Servers())))
	}},
	{"leader killed", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		leader, err := n.servers.Leader(whole)
		if err != nil {
			return err
		}
		return n.restart(ctx, whole, r, leader)
	}},
	{"server paused", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		i := r.IntN(len(n.servers.Servers()))
		if err := n.servers.Pause(whole, i); err != nil {
			return err
		}
		pause(ctx, n.span(r))
		return n.servers.Unpause(whole, i)
	}},
	{"follower cut off", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		leader, err := n.servers.Leader(whole)
		if err != nil {
			return err
		}
		return n.isolate(ctx, whole, r, (leader+1+r.IntN(2))%3)
	}},
	{"leader cut off", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		leader, err := n.servers.Leader(whole)
		if err != nil {
			return err
		}
		return n.isolate(ctx, whole, r, leader)
	}},
	{"rolling restart", func(_, whole context.Context, n *Nemesis, r *rand.Rand) error {
		for _, i := range r.Perm(len(n.servers.Servers())) {
			if err := n.servers.Stop(whole, i); err != nil {
				return err
			}
			if err := n.servers.StartNode(whole, i); err != nil {
				return err
			}
			if err := n.servers.WaitServing(whole); err != nil {
				return err
			}
		}
		return nil
	}},
	{"all servers down", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		for i := range n.servers.Servers() {
			if err := n.servers.Kill(whole, i); err != nil {
				return err
			}
		}
		pause(ctx, n.span(r)/2)
		for i := range n.servers.Servers() {
			if err := n.servers.StartNode(whole, i); err != nil {
				return err
			}
		}
		return nil
	}},
}

func (n *Nemesis) restart(ctx, whole context.Context, r *rand.Rand, i int) error {
	if err := n.servers.Kill(whole, i); err != nil {
		return err
	}
	pause(ctx, n.span(r)/3)
	return n.servers.StartNode(whole, i)
}

func (n *Nemesis) isolate(ctx, whole context.Context, r *rand.Rand, i int) error {
	if err := n.servers.Isolate(whole, i); err != nil {
		return err
	}
	pause(ctx, n.span(r))
	return n.servers.Heal(whole, i)
}
