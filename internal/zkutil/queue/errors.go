package queue

import "time"

// InterruptedError is the error of an Acquire, TryAcquire or Reenter whose context has ended before
// it has entered a hold. Package recipes has a public WaitError, which is made of it.
type InterruptedError struct {
	WaitStatus

	Waited time.Duration
	Err    error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }
func (e *InterruptedError) Unwrap() error { return e.Err }

// WaitStatus is what a waiter has found when it last read the queue.
type WaitStatus struct {
	Position int         // of the waiter: 1 is the holder; 0: the queue was not read yet
	Holder   Participant // the first contender; with its data only if the waiter has read them
}
