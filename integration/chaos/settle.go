package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// servedIn is how long it may take until everybody has had the lock once more, if a server has lost transactions: see ghostFoundIn.
const servedIn = healedIn + ghostFoundIn

// errLate is returned when some contenders have not had their last lease in time.
var errLate = errors.New("chaos: somebody did not get the lock once more")

// Stuck is what was seen when some contenders had not had their last lease in time.
type Stuck struct {
	Leader int    // the server that led, and was killed, so that another one leads
	Text   string // the heads of the queues, and the attempts that were going on
	at     int64
	heads  []string
}

// settle asks every contender for one more lease. If some have none when each client must have left a server that has lost
// transactions, then that server may be the leader, which no client can find out: so another one has to lead.
func (r *run) settle(ctx context.Context, n *Nemesis, o *Outcome) {
	for _, c := range r.clients {
		c.finish()
	}
	healed, patience := Now(), servedIn
	if r.Peer != "" {
		patience = 2 * healedIn
	}
	o.Settled, o.NotAll = r.awaitIdle(ctx, o.History, healed, patience)
	if !errors.Is(o.NotAll, errLate) {
		return
	}
	o.Stuck = &Stuck{at: Now(), heads: r.listQueueHeads(ctx)}
	if r.Peer != "" {
		return
	}
	var err error
	if o.Stuck.Leader, err = n.depose(ctx); err != nil {
		o.NotAll = errors.Join(o.NotAll, err)
		return
	}
	o.Settled, o.NotAll = r.awaitIdle(ctx, o.History, healed, patience)
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

// awaitIdle waits until every contender has had its last lease, and returns how long after the last fault that was. It records
// what the servers show if that takes longer than a server may be behind.
func (r *run) awaitIdle(ctx context.Context, h *History, healed int64, patience time.Duration) (took time.Duration, err error) {
	late, slow := time.After(patience), time.After(2*SessionTimeout)
	var last int64
	for _, c := range r.clients {
		for c.idle.Load() == 0 {
			select {
			case <-c.gone:
				if c.idle.Load() == 0 {
					return 0, fmt.Errorf("chaos: client %d has ended before its contenders were done", c.proc)
				}
			case <-slow:
				r.look(ctx, h, false)
			case <-late:
				return 0, fmt.Errorf("%w within %v", errLate, patience)
			case <-time.After(10 * time.Millisecond):
			}
		}
		last = max(last, c.idle.Load())
	}
	return time.Duration(last - healed), nil
}

// left is what remains at the servers of contenders that are done, in sessions that stand.
// The sessions of killed processes may take their time to expire.
func (r *run) left(ctx context.Context) (all []string) {
	for begun := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		all = r.leftNow(ctx)
		if len(all) == 0 || time.Since(begun) > 2*SessionTimeout || ctx.Err() != nil {
			return all
		}
	}
}

func (r *run) leftNow(ctx context.Context) (all []string) {
	for _, path := range dirs() {
		names, _, err := r.admin.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			names = []string{err.Error()}
		}
		for _, name := range names {
			all = append(all, path+"/"+name)
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.FourLetter(ctx, server, "wchs")
		if err != nil || !strings.Contains(watches, "Total watches:0") {
			all = append(all, fmt.Sprintf("watches at a server: %s %v", watches, err))
		}
	}
	return all
}
