package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
)

// serverFault is begun and ended by do, ended also if ctx ends.
type serverFault struct {
	name string
	do   func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error
}

// slowServer needs netem.
var slowServer = serverFault{"slow server", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
	i, delay := r.IntN(len(n.servers.Servers())), time.Duration(r.Int64N(int64(n.timeout)/20))
	if _, err := n.servers.Exec(whole, i, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", strconv.FormatInt(delay.Milliseconds(), 10)+"ms"); err != nil {
		return err
	}
	pause(ctx, n.span(r))
	_, err := n.servers.Exec(whole, i, "tc", "qdisc", "del", "dev", "eth0", "root")
	return err
}}

// slowDisks needs package slowdisk. Commits take from T/8 to almost T/2, at most twice as long as an fsync. With an fsync
// of more than half of syncLimit, the leader would abandon its followers, which is another fault. It excuses no violation:
// leases may be lost, but never overlap.
var slowDisks = serverFault{"slow fsync on all servers", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
	delay := n.timeout/8 + time.Duration(r.Int64N(int64(n.timeout)/10))
	if err := slowdisk.Slow(whole, n.servers, delay); err != nil {
		return err
	}
	pause(ctx, n.timeout+n.span(r))
	return slowdisk.Slow(whole, n.servers, 0)
}}

// hasNetem explains why slowServer is impossible, or returns nil.
func hasNetem(ctx context.Context, servers *ensemble.Ensemble) error {
	_, err := servers.Exec(ctx, 0, "sh", "-c", "tc qdisc add dev eth0 root netem delay 1ms && tc qdisc del dev eth0 root")
	return err
}

var serverFaults = []serverFault{
	{"server killed", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		return n.restart(ctx, whole, r, r.IntN(len(n.servers.Servers())))
	}},
	{"leader killed", killLeader},
	{"server paused", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		i := r.IntN(len(n.servers.Servers()))
		if err := n.servers.Pause(whole, i); err != nil {
			return err
		}
		pause(ctx, n.span(r))
		return n.servers.Unpause(whole, i)
	}},
	{"follower cut off", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		leader, err := n.leader(whole)
		if err != nil {
			return err
		}
		return n.isolate(ctx, whole, r, (leader+1+r.IntN(2))%3)
	}},
	{"leader cut off", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		leader, err := n.leader(whole)
		if err != nil {
			return err
		}
		return n.isolate(ctx, whole, r, leader)
	}},
	{"one server does not hear another", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		pair := r.Perm(len(n.servers.Servers()))
		if err := n.servers.Mute(whole, pair[0], pair[1]); err != nil {
			return err
		}
		pause(ctx, n.span(r))
		return n.servers.Heal(whole, pair[1])
	}},
	{"two servers apart", func(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
		pair := r.Perm(len(n.servers.Servers()))
		err := errors.Join(n.servers.Mute(whole, pair[0], pair[1]), n.servers.Mute(whole, pair[1], pair[0]))
		if err != nil {
			return err
		}
		pause(ctx, n.span(r))
		return errors.Join(n.servers.Heal(whole, pair[0]), n.servers.Heal(whole, pair[1]))
	}},
	{"rolling restart", func(_, whole context.Context, n *Nemesis, r *rand.Rand) error {
		ctx, cancel := context.WithTimeout(whole, recovery)
		defer cancel()
		return n.servers.RollingRestart(ctx, nil, r.Perm(len(n.servers.Servers()))...)
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

func killLeader(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
	leader, err := n.leader(whole)
	if err != nil {
		return err
	}
	return n.restart(ctx, whole, r, leader)
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
