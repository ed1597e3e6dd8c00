package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// servedIn bounds the time until every contender gets the lock once more after a server lost transactions, as explained at
// ghostFoundIn.
const servedIn = healedIn + ghostFoundIn

// errLate is returned when some contenders have not had their last lease in time.
var errLate = errors.New("chaos: some contenders did not get the lock once more")

// Stuck is what was seen when some contenders had not had their last lease in time.
type Stuck struct {
	Since  int64  // when the wait began
	Leader int    // the server that led
	Text   string // the first znode of each queue, and the unfinished attempts
	at     int64
}

// LeadersDeposed is the number of leaders that are killed, one after the other, because some contenders have no lease. The next
// leader may have the same data.
const LeadersDeposed = 2

// settle asks every contender for one more lease. A client leaves a server that lost transactions within servedIn, unless that
// server leads, because then no client can find out. So if some contenders have no lease by then, the leader is killed, and later its
// successor, because a follower that starts from the snapshot of such a leader has the same data.
func (r *run) settle(ctx context.Context, n *Nemesis, o *Outcome) {
	for _, c := range r.clients {
		c.finish()
	}
	o.Healed = Now()
	patience := servedIn
	if r.Peer != "" {
		patience = 2 * healedIn
	}
	for since := o.Healed; ; since = Now() {
		o.Settled, o.NotAll = r.awaitIdle(ctx, o, patience)
		if !errors.Is(o.NotAll, errLate) {
			return
		}
		leader, err := n.leader(ctx)
		if err != nil {
			o.NotAll = errors.Join(o.NotAll, err)
			return
		}
		o.Stuck = append(o.Stuck, &Stuck{Since: since, Leader: leader, at: Now()})
		if r.Peer != "" || len(o.Stuck) > LeadersDeposed {
			return
		}
		if err := n.depose(ctx, leader); err != nil {
			o.NotAll = errors.Join(o.NotAll, err)
			return
		}
	}
}

// depose kills the leader, and waits for another one.
func (n *Nemesis) depose(ctx context.Context, leader int) error {
	end := n.note("leader killed", 0, "")
	defer end(true)
	if err := n.servers.Kill(ctx, leader); err != nil {
		return err
	}
	if _, err := n.leader(ctx); err != nil {
		return err
	}
	if err := n.servers.StartNode(ctx, leader); err != nil {
		return err
	}
	return n.serving(ctx)
}

// awaitIdle waits for every contender's last lease, and returns the time since the last fault. Meanwhile it records views of
// the servers, often enough for the judge.
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
