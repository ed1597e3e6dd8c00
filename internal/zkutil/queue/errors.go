package queue

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// InterruptedError is the error of an Acquire, TryAcquire or Reenter whose context has ended before the call has entered a
// hold. Package recipes turns an InterruptedError into the public WaitError.
type InterruptedError struct {
	WaitStatus

	Waited time.Duration
	Err    error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }
func (e *InterruptedError) Unwrap() error { return e.Err }

// Interrupted returns err, as an InterruptedError if err comes from the end of ctx, the context of the caller.
func Interrupted(ctx context.Context, err error, status WaitStatus, startedAt time.Time) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &InterruptedError{WaitStatus: status, Waited: time.Since(startedAt), Err: zkutil.Both(err, status.lasting)}
	}
	return err
}

// WaitStatus is the state of the queue at the latest look of a waiter.
type WaitStatus struct {
	Position int         // of the waiter: 1 is the holder; 0: the queue was not read yet
	Holder   Participant // the first contender, unless the waiter is the first; with its data only if the waiter has read the data

	Ahead int // how many were ahead of the waiter at its first look at the queue

	wasRead bool  // Ahead is set
	lasting error // ErrNotEphemeral if the waiter waits for a znode that is not ephemeral

	slowWait
}

// SetHolder records the first contender.
func (s *WaitStatus) SetHolder(p Participant) { s.Holder, s.lasting = p, p.lasting() }

// recordAhead records how many contenders were ahead at the first look. Later looks do not count.
func (s *WaitStatus) recordAhead(n int) {
	if !s.wasRead {
		s.Ahead, s.wasRead = n, true
	}
}

// protectedName matches the names of our znodes.
var protectedName = regexp.MustCompile(zkutil.Protection + `[0-9a-f-]{36}-[a-z0-9_-]*-?[0-9]{10}`)

// IsSameFailure reports whether two errors have the same text but for the names of our znodes, which differ between
// attempts.
func IsSameFailure(a, b error) bool {
	anonymous := func(err error) string { return protectedName.ReplaceAllString(err.Error(), zkutil.Protection) }
	return a != nil && b != nil && anonymous(a) == anonymous(b)
}
