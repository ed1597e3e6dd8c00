package latch

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ID returns the ID with which other participants see this one: that of [WithID], or that of
// the client.
func (l *LeaderLatch) ID() string { return l.base.Queue.ID() }

// Path returns the path of the znode with which the latch waits or leads, namespace included, as in
// [LeaderLatch.Participants]. It is empty while the latch has no znode: before Start, during a pause,
// and after Close. The path is another one each time that the latch joins again.
func (l *LeaderLatch) Path() string { return l.candidate.Path() }

// Leader returns the first participant of the election, as the server knows it, and the zero
// Participant if there is none. It needs no Start. The first participant need not lead: see
// [recipes.Participant].
func (l *LeaderLatch) Leader(ctx context.Context) (recipes.Participant, error) {
	return l.base.Leader(ctx)
}

// Participants returns all participants, in the order in which they will lead, the leader first. It is
// a snapshot: a participant that leaves while it is taken is left out. A participant whose znode may
// not be read has an empty ID.
func (l *LeaderLatch) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return l.base.Participants(ctx)
}

// Observe returns the present leader and each later one, and the zero Participant while there is none.
// It needs no Start. A slow reader misses leaders that are outdated. While the server refuses, Observe
// tries again, and reports each refusal once, to the log at Warn and to the error handler. The channel
// is closed when ctx ends or the client is closed.
func (l *LeaderLatch) Observe(ctx context.Context) <-chan recipes.Participant {
	return l.base.Observe(ctx)
}
