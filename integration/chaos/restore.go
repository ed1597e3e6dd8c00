package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// restored is the kind of what an operator does who has lost the servers' data: all servers go on from a backup, while the
// clients run. The servers are behind what the clients have seen, and have their sessions of that time.
const restored = "ensemble restored from a backup"

// restoreEvery is how many bouts have one with a restore before it: the second of them, for there are two in each run.
const restoreEvery = 10

// electionsSince is how many leaders follow each other between a backup and its restore. After the restore there is one of the next
// epoch; with fewer before, the servers would be ahead of what the clients have seen, and take the sessions back.
const electionsSince = 2

// Era is a time in which the ensemble kept its history. In the next one zxids begin again where the backup was made, and the tokens
// with them: nothing is compared across its end.
type Era struct {
	Until    int64 // when the servers were about to start with the backup
	Lives    []*Life
	Refusals []Refusal
}

// backUp makes a backup for the next restore.
func (r *run) backUp(ctx context.Context, n *Nemesis) error {
	if r.Peer != "" { // whose connections would not come back
		return nil
	}
	if err := r.servers.Backup(ctx); err != nil {
		return err
	}
	for range electionsSince {
		end := n.note("leader killed", 0, "")
		err := killLeader(ctx, context.WithoutCancel(ctx), n, rand.New(rand.NewPCG(r.Seed, 0)))
		err = errors.Join(err, n.serving(ctx))
		end(true)
		if err != nil {
			return err
		}
	}
	return nil
}

// restore takes the servers back to the latest backup, and the guarded rows with them, as docs/operations.md says. By the time the
// servers start, all leases have ended, and all work under them.
func (r *run) restore(ctx context.Context, n *Nemesis, h *History) error {
	if r.Peer != "" {
		return nil
	}
	end := n.note(restored, 0, "")
	defer end(true)
	r.stalls = append(r.stalls, r.pulse.Stop()...)
	r.admin.Close()
	err := r.servers.Restore(ctx, func(ctx context.Context) error {
		const slowest = SessionTimeout // contenders who are slow to see that they have lost the lock
		pause(ctx, SessionTimeout+slowest+time.Second)
		h.Former = append(h.Former, Era{Until: Now()})
		return resetTokens(ctx, r.db)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", restored, err)
	}
	if err := n.serving(ctx); err != nil {
		return fmt.Errorf("%s: %w", restored, err)
	}
	admin, _, err := zk.Connect(r.servers.Servers(), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	r.admin, n.admin = admin, admin
	if r.pulse, err = startPulse(ctx, r.admin, r.servers.Servers()); err != nil {
		return err
	}
	pause(ctx, 2*SessionTimeout) // the clients come back, and the sessions of the backup expire
	return r.backUp(ctx, n)
}

// eras are the histories of the times in which the ensemble kept its own. An attempt belongs to the era in which it was granted, or
// has failed.
func (h *History) eras() (all []*History) {
	if len(h.Former) == 0 {
		return []*History{h}
	}
	from := int64(0)
	for _, f := range append(slices.Clip(h.Former), Era{Until: h.end() + 1, Lives: h.Lives, Refusals: h.Refusals}) {
		era := &History{Faults: h.Faults, Starved: h.Starved, Lives: f.Lives, Refusals: f.Refusals, Offset: h.Offset}
		for _, v := range h.Views {
			if from <= v.At && v.At < f.Until {
				era.Views = append(era.Views, v)
			}
		}
		all, from = append(all, era), f.Until
	}
	h.divideEvents(all)
	return all
}

// eraAt is the history of the era that a moment is in.
func (h *History) eraAt(at int64) *History {
	eras := h.eras()
	for i, f := range h.Former {
		if at < f.Until {
			return eras[i]
		}
	}
	return eras[len(eras)-1]
}

// divideEvents gives each era its events.
func (h *History) divideEvents(eras []*History) {
	type attempt struct {
		by  string
		try int
	}
	called := make(map[attempt]Event) // those that have not been granted, nor failed
	i := 0
	for _, e := range h.Events {
		for i < len(h.Former) && e.At >= h.Former[i].Until {
			i++
		}
		a := attempt{e.By, e.Try}
		switch e.What {
		case Called:
			called[a] = e
			continue
		case Granted, Failed:
			if call, isKnown := called[a]; isKnown {
				eras[i].Events = append(eras[i].Events, call)
				delete(called, a)
			}
		default:
		}
		eras[i].Events = append(eras[i].Events, e)
	}
	for _, era := range eras {
		slices.SortStableFunc(era.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	}
}
