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

// restored is the kind of a restore after data loss: all servers continue from a backup, while the clients run. The
// servers are behind the clients, and have the sessions of the backup.
const restored = "ensemble restored from a backup"

// restoreEvery is the number of bouts per bout with a restore before it. It is the second of them, because each run
// has two.
const restoreEvery = 10

// electionsSince is the number of elections between a backup and its restore. After the restore, the leader has the next epoch.
// With fewer elections before, the servers would be ahead of the clients, and continue their sessions.
const electionsSince = 2

// Era is a time in which the ensemble keeps its history. In the next era, zxids and tokens restart where the backup was made,
// so nothing is compared across eras.
type Era struct {
	Until    int64 // when the servers were about to start with the backup
	Lives    []*Life
	Refusals []Refusal
}

// backUp makes a backup for the next restore.
func (r *run) backUp(ctx context.Context, n *Nemesis) error {
	if r.Peer != "" { // whose connections would never reconnect
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

// restore restores the servers, and the guarded rows, from the latest backup, as docs/operations.md describes. All leases, and
// all work under them, end before the servers start.
func (r *run) restore(ctx context.Context, n *Nemesis, h *History) error {
	if r.Peer != "" {
		return nil
	}
	end := n.note(restored, 0, "")
	defer end(true)
	r.stalls = append(r.stalls, r.pulse.Stop()...)
	r.admin.Close()
	err := r.servers.Restore(ctx, func(ctx context.Context) error {
		const slowest = SessionTimeout // contenders that are slow to notice the loss of the lock
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
	pause(ctx, 2*SessionTimeout) // the clients reconnect, and the sessions of the backup expire
	return r.backUp(ctx, n)
}

// eras returns the histories of the eras. An attempt belongs to the era of its grant or failure.
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
	called := make(map[attempt]Event) // neither granted nor failed yet
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
