package zkutil

import "time"

// WaitError is the error of an Acquire, TryAcquire or Reenter whose context has ended before it
// has entered a hold.
type WaitError struct {
	Standing

	Waited time.Duration
	Err    error
}

// Error is for the engine's tests alone: recipes have a WaitError of their own.
func (e *WaitError) Error() string { return e.Err.Error() }
func (e *WaitError) Unwrap() error { return e.Err }

// Standing is what the last look at the queue has shown of a waiter.
type Standing struct {
	Position int         // from 1, which holds; 0 before the first look
	Holder   Participant // the first; its data are there only if the waiter has seen them
}
