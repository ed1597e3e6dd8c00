package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// clientFault is begun and ended by do, which reports whether it hit anything.
type clientFault struct {
	name string
	do   func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool
}

// Faults that a peer has no part in.
const (
	shutDownClient = "client with work shut down"
	loginFails     = "login fails"
)

// silentToAll is done by the servers' hand too.
const silentToAll = "silent line to all servers"

var clientFaults = []clientFault{
	{pauseClient, func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		c.pause()
		pause(ctx, n.span(r))
		c.proceed()
		return true
	}},
	{pauseBriefly, func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		c.pause()
		pause(ctx, n.timeout/5+time.Duration(r.Int64N(int64(n.timeout)*7/10)))
		c.proceed()
		return true
	}},
	{"slow handshakes", slowHandshakes},
	{killClient, func(_ context.Context, _ *Nemesis, _ *rand.Rand, c *client) bool {
		c.crash()
		return true
	}},
	{silentToAll, held((*faultproxy.Proxy).Hold)},
	{"silent line to its server", func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		span := n.span(r)
		used := func(line *faultproxy.Proxy) bool { return line.Live() > 0 }
		i := slices.IndexFunc(c.lines, used)
		if i < 0 {
			return false
		}
		c.lines[i].Hold()
		pause(ctx, span)
		c.release()
		return true
	}},
	{"client not heard", held((*faultproxy.Proxy).HoldUp)},
	{"servers not heard", held((*faultproxy.Proxy).HoldDown)},
	{"slow line", func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		d := time.Duration(r.Int64N(int64(n.timeout) / 20))
		for _, line := range c.lines {
			line.Delay(d)
		}
		pause(ctx, n.span(r))
		c.release()
		return true
	}},
	{"connection cut", func(_ context.Context, _ *Nemesis, _ *rand.Rand, c *client) bool { return c.cut() }},
	{"connection refused", func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		for _, line := range c.lines {
			line.Refuse(true)
		}
		c.cut()
		pause(ctx, n.span(r))
		c.release()
		return true
	}},
	{expireSession, func(ctx context.Context, n *Nemesis, _ *rand.Rand, c *client) (hit bool) {
		for _, line := range c.lines {
			if line.Live() == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, n.timeout)
			hit = line.ExpireSessions(ctx) == nil || hit // or no server, or no session by now
			cancel()
		}
		return hit
	}},
	{"answer lost", dropping((*faultproxy.Proxy).DropReply)},
	{"request lost", dropping((*faultproxy.Proxy).DropRequest)},
	{shutDownClient, func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		for range 1 + r.IntN(4) { // clients, one after the other
			c.shutdown()
			pause(ctx, n.timeout/8+n.span(r)/4)
		}
		return true
	}},
	{loginFails, failLogins},
	{deleteZnode, deleteOne},
}

// slowHandshakes delays the answers to handshakes by up to half the session timeout, and forces some handshakes. A lease
// may be lost, and a client may be disconnected for as long as the fault lasts. It excuses no violation.
func slowHandshakes(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) (hit bool) {
	d := n.timeout/12 + time.Duration(r.Int64N(int64(n.timeout)*5/12))
	again := r.IntN(2) == 0
	span := n.timeout + n.span(r)
	var rules []*faultproxy.Rule
	for _, line := range c.lines {
		rules = append(rules, line.DelayReply(faultproxy.Op("connect"), d))
	}
	c.cut()
	pause(ctx, span/2)
	if again {
		c.cut()
	}
	pause(ctx, span/2)
	for _, rule := range rules {
		rule.Remove()
		hit = hit || rule.Hits() > 0
	}
	return hit
}

// held keeps a client's lines silent.
func held(hold func(*faultproxy.Proxy)) func(context.Context, *Nemesis, *rand.Rand, *client) bool {
	return func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
		for _, line := range c.lines {
			hold(line)
		}
		pause(ctx, n.span(r))
		c.release()
		return true
	}
}

// dropping loses some messages of one kind on every line of a client, with their connections.
func dropping(drop func(*faultproxy.Proxy, faultproxy.Match, int) *faultproxy.Rule) func(context.Context, *Nemesis, *rand.Rand, *client) bool {
	matches := []faultproxy.Match{
		faultproxy.Creates(), faultproxy.Op("delete"), faultproxy.Op("getData"), faultproxy.Op("getChildren2"),
		faultproxy.Op("sync"), faultproxy.Op("setData"), faultproxy.Op("multi"), faultproxy.Op("setWatches"), faultproxy.Any(),
	}
	return func(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) (hit bool) {
		match, times := matches[r.IntN(len(matches))], 1+r.IntN(3)
		again := r.IntN(2) == 0 // at what follows a reconnect
		var rules []*faultproxy.Rule
		for _, line := range c.lines {
			rules = append(rules, drop(line, match, times))
		}
		if again {
			c.cut()
		}
		pause(ctx, n.span(r)/3)
		for _, rule := range rules {
			rule.Remove()
			hit = hit || rule.Hits() > 0
		}
		return hit
	}
}

// deleteOne deletes a znode, mostly the first of a queue.
func deleteOne(_ context.Context, n *Nemesis, r *rand.Rand, _ *client) bool {
	all := dirs()
	dir := all[r.IntN(len(all))]
	someOne, which := r.IntN(4) == 0, r.IntN(1000)
	names := n.queue(dir)
	if len(names) == 0 {
		return false
	}
	znode := dir + "/" + names[0]
	if someOne {
		znode = dir + "/" + names[which%len(names)]
	}
	end := n.note(deleteZnode, 0, znode)
	err := n.admin.Delete(znode, -1)
	end(err == nil) // or its owner was quicker
	return err == nil
}
