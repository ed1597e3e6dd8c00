package elections

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// Master is what a thread around a lock makes: it knows whether it is the master.
type Master struct{ latch *latch.LeaderLatch }

// NewMaster stands for election. onElected runs whenever this process is elected; its
// context ends when the process is the master no more, and then it has to return.
func NewMaster(client *recipes.Client, onElected func(ctx context.Context)) (*Master, error) {
	l, err := latch.New(client, "/services/report", latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) { onElected(term.Context()) },
	}))
	if err != nil {
		return nil, err
	}
	return &Master{latch: l}, l.Start()
}

// IsMaster goes by the clock, not by a flag that a stuck thread has forgotten.
func (m *Master) IsMaster() bool { return m.latch.HasLeadership() }

// Shutdown is for the shutdown hook: it returns when onElected has, and the next process
// is elected.
func (m *Master) Shutdown() error { return m.latch.Close() }
