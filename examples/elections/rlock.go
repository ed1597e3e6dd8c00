package elections

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// Master replaces a thread around a lock. It knows whether this process is the master.
type Master struct{ latch *latch.LeaderLatch }

// NewMaster enters the election. onElected runs whenever this process is elected. It has to return when its context
// ends, because the process is no longer the master.
func NewMaster(client *recipes.Client, onElected func(ctx context.Context)) (*Master, error) {
	l, err := latch.New(client, "/services/report", latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) { onElected(term.Context()) },
	}))
	if err != nil {
		return nil, err
	}
	return &Master{latch: l}, l.Start()
}

// IsMaster compares the clock instead of reading a flag that may be stale.
func (m *Master) IsMaster() bool { return m.latch.HasLeadership() }

// Shutdown returns once onElected returned and the next process can be elected: call it
// in the shutdown hook.
func (m *Master) Shutdown() error { return m.latch.Close() }
