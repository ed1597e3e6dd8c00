package queue

import (
	"context"
	"errors"
	"time"
)

// InterruptedError is the error of an Acquire, TryAcquire or Reenter whose context has ended before
// it has entered a hold. Package recipes has a public WaitError, which is made of it.
type InterruptedError struct {
	WaitStatus

	Waited time.Duration
	Err    error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }
func (e *InterruptedError) Unwrap() error { return e.Err }

// interrupted returns err, as an InterruptedError if it comes from the end of ctx, which is the context
// of the caller.
func interrupted(ctx context.Context, err error, status WaitStatus, startedAt time.Time) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &InterruptedError{WaitStatus: status, Waited: time.Since(startedAt), Err: err}
	}
	return err
}

// WaitStatus is what a waiter has found when it last read the queue.
type WaitStatus struct {
	Position int         // of the waiter: 1 is the holder; 0: the queue was not read yet
	Holder   Participant // the first contender, if that is another one; with its data only if the waiter has read them

	ahead   int  // of the waiter at the first look at the queue
	wasRead bool // ahead is set

	slowWait
}

// recordAhead takes note of how many were ahead at the first look. Later ones do not count.
func (s *WaitStatus) recordAhead(n int) {
	if !s.wasRead {
		s.ahead, s.wasRead = n, true
	}
}
