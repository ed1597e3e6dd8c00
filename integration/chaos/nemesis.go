package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// Nemesis harms servers and clients, each with its own choice of faults from one seed.
type Nemesis struct {
	servers *ensemble.Ensemble
	clients []*client
	admin   *zk.Conn // whose line is never harmed
	timeout time.Duration
	netem   bool     // the kernel can delay a server's packets
	disks   bool     // servers can be made to wait for their disks
	lacking []string // fault kinds that this run lacks

	mu     sync.Mutex
	faults []Fault
}

// note records a fault, and returns a function that records its end, and whether it had an effect.
func (n *Nemesis) note(kind string, proc int, znode string) (end func(hit bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := len(n.faults)
	n.faults = append(n.faults, Fault{Kind: kind, Proc: proc, Znode: znode, From: Now()})
	return func(hit bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.faults[i].To, n.faults[i].Missed = Now(), !hit
	}
}

// span is between a tenth and three times the session timeout, short ones being more likely.
func (n *Nemesis) span(r *rand.Rand) time.Duration {
	x := r.Float64()
	return time.Duration((0.1 + 2.9*x*x) * float64(n.timeout))
}

// pause waits, or until the end of ctx.
func pause(ctx context.Context, d time.Duration) { linger(d, ctx.Done()) }

// clientHand harms some clients until ctx ends, one fault at a time, and leaves everything whole. Its first fault is a
// shutdown where a run has them, because a short run draws only a few of the kinds.
func (n *Nemesis) clientHand(r *rand.Rand, clients []*client) func(ctx context.Context) error {
	kinds := slices.DeleteFunc(slices.Concat(clientFaults, namedFaults), func(k clientFault) bool { return slices.Contains(n.lacking, k.name) })
	next := slices.IndexFunc(kinds, func(k clientFault) bool { return k.name == shutDownClient })
	return func(ctx context.Context) error {
		for ; ctx.Err() == nil; next = -1 {
			if next < 0 {
				next = r.IntN(len(kinds))
			}
			kind := kinds[next]
			c := clients[r.IntN(len(clients))]
			n.harm(ctx, r, kind, c)
			pause(ctx, time.Duration(r.Int64N(int64(n.timeout)/4)))
		}
		return nil
	}
}

func (n *Nemesis) harm(ctx context.Context, r *rand.Rand, kind clientFault, c *client) {
	c.harmed.Lock()
	defer c.harmed.Unlock()
	if kind.name == deleteZnode { // which has a path
		kind.do(ctx, n, r, c)
		return
	}
	end := n.note(kind.name, c.proc, "")
	end(kind.do(ctx, n, r, c))
}

// recovery is how long servers may take to serve.
const recovery = 5 * time.Minute

// serving waits for all servers.
func (n *Nemesis) serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	return n.servers.WaitServing(ctx)
}

// leader waits for one.
func (n *Nemesis) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	return n.servers.Leader(ctx)
}

// boundsEvery is the number of bouts per bout that begins with movedBounds, which takes as long as a bout. It is the
// second of them, because each run has two.
const boundsEvery = 5

// serverHand harms the servers until ctx ends, one fault at a time, and leaves everything whole.
func (n *Nemesis) serverHand(r *rand.Rand) func(ctx context.Context) error {
	kinds := serverFaults
	if n.netem {
		kinds = append(slices.Clip(kinds), slowServer)
	}
	if n.disks {
		kinds = append(slices.Clip(kinds), slowDisks)
	}
	bouts := 0
	return func(ctx context.Context) error {
		whole := context.WithoutCancel(ctx) // what was begun is ended
		bouts++
		for first := true; ctx.Err() == nil; first = false {
			kind := kinds[r.IntN(len(kinds))]
			if first && bouts%boundsEvery == 2 {
				kind = serverFault{movedBounds, moveBounds}
			}
			end := n.note(kind.name, 0, "")
			err := kind.do(ctx, whole, n, r)
			if err == nil {
				err = n.serving(whole)
			}
			end(true)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			pause(ctx, time.Duration(r.Int64N(int64(n.timeout))))
		}
		return nil
	}
}
