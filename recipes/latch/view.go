package latch

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ID returns the ID by which other participants see this latch. It is the ID set by [WithID], or else the client's.
func (l *LeaderLatch) ID() string { return l.base.ID() }

// Path returns the path of the znode with which the latch waits or leads, namespace included, as in
// [LeaderLatch.Participants]. Path returns "" while the latch has no znode: before Start, during a pause, after
// Close, and when the znode of the term was deleted or expired. Each time the latch joins again, the path changes.
func (l *LeaderLatch) Path() string {
	l.base.MustCheck("path")
	return l.candidate.Path()
}

// Leader returns the first participant of the election, as known to the server, and the zero Participant without
// participants. Leader needs no Start. The first participant need not lead (see [recipes.Participant]).
func (l *LeaderLatch) Leader(ctx context.Context) (recipes.Participant, error) {
	return l.base.Leader(ctx)
}

// Participants returns all participants in the order of the queue, the leader first. The result is a snapshot,
// without participants that leave meanwhile. A participant whose znode may not be read has an empty ID.
func (l *LeaderLatch) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return l.base.Participants(ctx)
}

// TransferTo makes the candidate with the given id the leader. It asks all candidates ahead of that candidate to yield, and
// returns once that candidate is first. The leader steps down in the order of every step-down, so TransferTo waits for its
// work; ctx bounds the wait. Any latch of the path can be used, started or not, of any process. All candidates ahead need
// [WithPriority], and so does the one with the id, because Curator's latch misses the end of a candidate that was asked to
// yield right ahead of it. The transfer lasts for as long as the new leader leads, unless a candidate joins whose priority is
// higher than those of all others. The candidates that take part now do not ask the new leader to yield.
//
// The error is ErrNoCandidate if not exactly one candidate has the id for 3 s, or if it leaves, ErrNotSteered if one of these
// has no priority, the error of ctx, or one of the server. Candidates that yielded by then stay behind. Inside the work of the
// leader, call TransferTo with the context of the term: it returns when the step-down begins.
func (l *LeaderLatch) TransferTo(ctx context.Context, id string) error {
	return l.base.TransferTo(ctx, id)
}

// Observe returns the present leader and each later leader, and the zero Participant while there is no leader.
// Observe needs no Start. A slow reader misses outdated leaders. While the server refuses, Observe tries again, and
// reports each refusal once, to the log at Warn and to the error handler. The channel is closed when ctx ends or the
// client is closed.
func (l *LeaderLatch) Observe(ctx context.Context) <-chan recipes.Participant {
	return l.base.Observe(ctx)
}
