package recipe

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Base is the part that is the same in all recipes with a queue.
type Base struct {
	Path  string // as the user gave it
	Queue *queue.Queue
}

// New returns the base of a recipe on path, an absolute path below the client's namespace. In q
// is what only this recipe has; New adds the session, the directory, and the markers if there are none.
// The error is that of the recipe's own New. The queue may be changed until the recipe's New returns.
func New(c *recipes.Client, path string, q queue.Queue) (Base, error) {
	b := Base{Path: path, Queue: &q}
	own, dir, err := Attach(c, path)
	if err != nil {
		return b, b.InvalidArgument("new", err)
	}
	q.Session, q.Dir, q.Path = own, dir, path
	if q.Markers == nil {
		q.Markers = queue.Markers
	}
	return b, nil
}

// OpError returns err with the operation and the path before it.
func (b Base) OpError(op string, err error) *recipes.OpError {
	return &recipes.OpError{Op: b.Queue.Recipe + ": " + op, Path: b.Path, Err: err}
}

// InvalidArgument returns the OpError of an operation for which the user gave a wrong argument.
func (b Base) InvalidArgument(op string, err error) *recipes.OpError {
	return b.OpError(op, zkutil.Invalid(err))
}

// EndAcquisition ends an acquisition with its entries, or with err, for the traces. It returns the error for the
// caller of op.
func (b Base) EndAcquisition(a *session.Acquisition, op string, isReentry bool, err error, entries ...*session.Entry) error {
	if err != nil {
		err = b.OpError(op, PublicError(err))
		a.Fail(err)
		return err
	}
	a.Succeed(isReentry, entries...)
	return nil
}

// Leader returns the first contender of the queue, and the zero Participant if it is empty.
func (b Base) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := b.Queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, b.OpError("leader", err)
	}
	return toParticipant(first), nil
}

// Participants returns all contenders, in the order of the queue.
func (b Base) Participants(ctx context.Context) ([]recipes.Participant, error) {
	contenders, err := b.Queue.Participants(ctx)
	if err != nil {
		return nil, b.OpError("participants", err)
	}
	participants := make([]recipes.Participant, len(contenders))
	for i, contender := range contenders {
		participants[i] = toParticipant(contender)
		participants[i].Leader = contender.IsAdmitted
	}
	return participants, nil
}

// Observe returns the first contender whenever that changes: see queue.Observe.
func (b Base) Observe(ctx context.Context) <-chan recipes.Participant {
	return queue.Observe(ctx, b.Queue, toParticipant)
}
