package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// stalled is the kind of a time in which the quorum committed late without a fault of the nemesis, as
// when the machine has no time for the servers.
const stalled = "quorum stalled"

const (
	pulsePath  = "/pulse"
	pulseEvery = SessionTimeout / 10
	// pulseLate is how long a commit may take before a client may have to leave its server.
	pulseLate = SessionTimeout / 6
)

// beat is a write that was committed.
type beat struct{ sent, answered int64 }

// pulse shows when the quorum committed, independently of the library: a zk.Conn to each server, on lines without
// faults, writes again and again.
type pulse struct {
	stop  context.CancelFunc
	began int64
	tasks sync.WaitGroup
	conns []*zk.Conn

	mu    sync.Mutex // protects what is below
	beats []beat
}

// startPulse begins to write. Stop ends that.
func startPulse(ctx context.Context, admin *zk.Conn, servers []string) (*pulse, error) {
	if _, err := admin.Create(pulsePath, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, fmt.Errorf("chaos: pulse: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &pulse{stop: stop, began: Now()}
	for _, server := range servers {
		conn, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
		if err != nil {
			_ = p.Stop()
			return nil, fmt.Errorf("chaos: pulse: %w", err)
		}
		p.conns = append(p.conns, conn)
		p.tasks.Go(func() { p.write(ctx, conn) }) // ends with ctx, or with the connection; joined in Stop
	}
	return p, nil
}

func (p *pulse) write(ctx context.Context, conn *zk.Conn) {
	for ; ctx.Err() == nil; linger(pulseEvery, ctx.Done()) {
		sent := Now()
		if _, err := conn.Set(pulsePath, nil, -1); err == nil {
			p.mu.Lock()
			p.beats = append(p.beats, beat{sent, Now()})
			p.mu.Unlock()
		}
	}
}

// Stop ends the pulse, and returns the times in which the quorum was stalled.
func (p *pulse) Stop() []Fault {
	p.stop()
	ended := Now()
	for _, conn := range p.conns {
		conn.Close()
	}
	p.tasks.Wait()
	return stalls(p.beats, p.began, ended)
}

// stalls are the times between two prompt commits that are too far apart, and the times without any at the beginning and at the end.
func stalls(beats []beat, began, ended int64) (found []Fault) {
	prompt := slices.DeleteFunc(slices.Clone(beats), func(b beat) bool { return b.answered-b.sent > int64(pulseLate) })
	prompt = append(prompt, beat{began, began}, beat{ended, ended})
	slices.SortFunc(prompt, func(a, b beat) int { return cmp.Compare(a.answered, b.answered) })
	for i := 1; i < len(prompt); i++ {
		last, next := prompt[i-1], prompt[i]
		if next.sent-last.answered > int64(pulseLate) {
			found = append(found, Fault{Kind: stalled, From: last.answered, To: next.answered})
		}
	}
	return found
}

// StalledByItself is how often, and for how long, the quorum was stalled while no fault of the servers
// was played, nor shortly before.
func (h *History) StalledByItself() (n int, sum time.Duration) {
	for _, f := range h.Starved {
		isPlayed := slices.ContainsFunc(h.Faults, func(played Fault) bool {
			return played.Proc == 0 && played.From <= f.To && f.From <= played.To+toldLate
		})
		if f.Kind == stalled && !isPlayed {
			n, sum = n+1, sum+time.Duration(f.To-f.From)
		}
	}
	return n, sum
}
