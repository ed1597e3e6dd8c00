package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// servedIn is how long it may take until everybody has had the lock once more, if a server has lost transactions: see ghostFoundIn.
const servedIn = healedIn + ghostFoundIn

// errLate is returned when some contenders have not had their last lease in time.
var errLate = errors.New("chaos: somebody did not get the lock once more")

// Stuck is what was seen when some contenders had not had their last lease in time.
type Stuck struct {
	Leader int    // the server that led, and was killed, so that another one leads
	Text   string // the first znode of each queue, and the attempts that were going on
	at     int64
}

// settle asks every contender for one more lease. A client leaves a server that has lost transactions within servedIn, but not if
// that server leads, because no client can find that out. So if some contenders have no lease by then, the leader is killed.
func (r *run) settle(ctx context.Context, n *Nemesis, o *Outcome) {
	for _, c := range r.clients {
		c.finish()
	}
	o.Healed = Now()
	patience := servedIn
	if r.Peer != "" {
		patience = 2 * healedIn
	}
	o.Settled, o.NotAll = r.awaitIdle(ctx, o, patience)
	if !errors.Is(o.NotAll, errLate) {
		return
	}
	o.Stuck = &Stuck{at: Now()}
	if r.Peer != "" {
		return
	}
	var err error
	if o.Stuck.Leader, err = n.depose(ctx); err != nil {
		o.NotAll = errors.Join(o.NotAll, err)
		return
	}
	o.Settled, o.NotAll = r.awaitIdle(ctx, o, patience)
}

// depose kills the leader, lets another server lead, and returns which one it was.
func (n *Nemesis) depose(ctx context.Context) (leader int, err error) {
	if leader, err = n.leader(ctx); err != nil {
		return 0, err
	}
	end := n.note("leader killed", 0, "")
	defer end(true)
	if err := n.servers.Kill(ctx, leader); err != nil {
		return 0, err
	}
	if _, err := n.leader(ctx); err != nil {
		return 0, err
	}
	if err := n.servers.StartNode(ctx, leader); err != nil {
		return 0, err
	}
	return leader, n.serving(ctx)
}

// awaitIdle waits until every contender has had its last lease, and returns how long after the last fault that was. Meanwhile it
// records what the servers show, so often that no wait that the judge minds passes without.
func (r *run) awaitIdle(ctx context.Context, o *Outcome, patience time.Duration) (took time.Duration, err error) {
	late, tick := time.After(patience), time.NewTicker(SessionTimeout/2)
	defer tick.Stop()
	var last int64
	for _, c := range r.clients {
		for c.idle.Load() == 0 {
			select {
			case <-c.gone:
				if c.idle.Load() == 0 {
					return 0, fmt.Errorf("chaos: client %d has ended before its contenders were done", c.proc)
				}
			case <-tick.C:
				r.look(ctx, o.History, false)
			case <-late:
				return 0, fmt.Errorf("%w within %v", errLate, patience)
			case <-time.After(10 * time.Millisecond):
			}
		}
		last = max(last, c.idle.Load())
	}
	return time.Duration(last - o.Healed), nil
}
