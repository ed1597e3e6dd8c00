package recipe

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/election"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Base is the common part of all recipes with a queue.
type Base struct {
	Path  string       // as passed by the user
	Queue *queue.Queue // nil: the recipe is a zero value
}

// New returns the base of a recipe on path, an absolute path below the client's namespace. q has the
// recipe's own fields; New adds the session, the directory, and the default markers if q has none. The
// error is the error of the recipe's own New. The queue may be changed until the recipe's New returns.
func New(c *recipes.Client, path string, q queue.Queue) (Base, error) {
	b := Base{Path: path, Queue: &q}
	own, dir, err := AttachAt(c, path)
	if err != nil {
		return b, b.InvalidArgument("new", err)
	}
	q.Session, q.Dir, q.Path = own, dir, path
	if q.Markers == nil {
		q.Markers = queue.Markers
	}
	return b, nil
}

// Check fails if the recipe is a zero value. Methods that would use the queue call it first.
func (b Base) Check(op string) error {
	if b.Queue == nil {
		return ZeroValue(op)
	}
	return nil
}

// MustCheck is Check for methods that return no error. It panics.
func (b Base) MustCheck(op string) {
	if err := b.Check(op); err != nil {
		panic(err)
	}
}

// OpError returns err with the operation and the path as prefix. For a zero value it returns ZeroValue instead.
func (b Base) OpError(op string, err error) *recipes.OpError {
	if b.Queue == nil {
		return ZeroValue(op)
	}
	return &recipes.OpError{Op: b.Queue.Recipe + ": " + op, Path: b.Path, Err: err}
}

// InvalidArgument returns the OpError for an invalid argument.
func (b Base) InvalidArgument(op string, err error) *recipes.OpError {
	return b.OpError(op, zkutil.Invalid(err))
}

// EndAcquisition ends the trace of an acquisition, with its entries or with err, and returns the error
// for the caller of op.
func (b Base) EndAcquisition(a *trace.Acquisition, op string, isReentry bool, err error, entries ...*session.Entry) error {
	if err != nil {
		err = b.OpError(op, PublicError(err))
		a.Fail(err)
		return err
	}
	session.Succeed(a, isReentry, entries...)
	return nil
}

// ID returns the ID that other contenders see.
func (b Base) ID() string {
	b.MustCheck("id")
	return b.Queue.ID()
}

// Leader returns the first contender of the queue, or the zero Participant if the queue is empty.
func (b Base) Leader(ctx context.Context) (recipes.Participant, error) {
	if err := b.Check("leader"); err != nil {
		return recipes.Participant{}, err
	}
	first, err := b.Queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, b.OpError("leader", err)
	}
	return toParticipant(first), nil
}

// Participants returns all contenders, in the order of the queue.
func (b Base) Participants(ctx context.Context) ([]recipes.Participant, error) {
	if err := b.Check("participants"); err != nil {
		return nil, err
	}
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

// SetPriority makes the candidates of the queue steered. Call SetPriority in the recipe's New.
func (b Base) SetPriority(priority int) {
	b.Queue.IsSteered, b.Queue.Prefix = true, queue.SteeredPrefix(priority, b.Queue.Prefix)
}

// TransferTo has the candidate with an id lead.
func (b Base) TransferTo(ctx context.Context, id string) error {
	if err := b.Check("transfer"); err != nil {
		return err
	}
	if err := election.Transfer(ctx, b.Queue, id); err != nil {
		return b.OpError("transfer", err)
	}
	return nil
}

// Observe returns a channel of the first contender at each change (see queue.Observe).
func (b Base) Observe(ctx context.Context) <-chan recipes.Participant {
	b.MustCheck("observe")
	return queue.Observe(ctx, b.Queue, toParticipant)
}
