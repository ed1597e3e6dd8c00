package latch

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// ID returns what others see of this participant: the id of [WithID], or the host's address.
func (l *LeaderLatch) ID() string { return l.queue.ID() }

// Path returns the path of the znode with which the latch waits or leads, namespace included,
// as [LeaderLatch.Participants] lists it. It is empty while the latch has none: before Start,
// during a pause, and after Close. Each time that the latch joins again it has another one.
func (l *LeaderLatch) Path() string { return l.candidate.Path() }

// Leader returns who is first in the election, as the server knows it, or the zero
// Participant when nobody takes part. It needs no Start. Who is first need not lead: see
// [recipes.Participant].
func (l *LeaderLatch) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := l.queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, &recipes.OpError{Op: "latch: leader", Path: l.path, Err: err}
	}
	return recipes.ParticipantOf(first), nil
}

// Participants returns those who take part, in the order in which they will lead, the
// leader first. It is a snapshot: those who leave while it is taken are left out. One that may
// not be read has an empty ID.
func (l *LeaderLatch) Participants(ctx context.Context) ([]recipes.Participant, error) {
	queue, err := l.queue.Participants(ctx)
	if err != nil {
		return nil, &recipes.OpError{Op: "latch: participants", Path: l.path, Err: err}
	}
	return recipes.ParticipantsOf(queue), nil
}

// Observe returns the leader as it changes, the present one first, and the zero
// Participant while nobody takes part. It needs no Start. A slow reader misses leaders that
// are outdated by then. Where the server refuses, it goes on and says so in the log, at Warn,
// and to the error handler, once for each refusal. The channel is closed when ctx ends or the
// client is closed.
func (l *LeaderLatch) Observe(ctx context.Context) <-chan recipes.Participant {
	return zkutil.Observe(ctx, l.queue, recipes.ParticipantOf)
}
