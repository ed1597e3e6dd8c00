package recipe

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// PublicError returns err, with a queue.InterruptedError replaced by a recipes.WaitError.
func PublicError(err error) error {
	wait, ok := zkutil.AsType[*queue.InterruptedError](err)
	if !ok {
		return err
	}
	return &recipes.WaitError{
		Position: wait.Position,
		Holder:   toParticipant(wait.Holder),
		Waited:   wait.Waited,
		Err:      wait.Err,
	}
}

// LogAttributes returns the attributes of an error's log record, which are the path, the error, and for a panic its
// stack.
func LogAttributes(path string, err error) []any {
	attributes := []any{"path", path, "err", err}
	if panicked, ok := zkutil.AsType[*recipes.PanicError](err); ok {
		attributes = append(attributes, "stack", string(panicked.Stack))
	}
	return attributes
}
