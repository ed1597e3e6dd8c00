package zkutil

import (
	"context"
	"errors"
	"reflect"
)

// IsEndOf reports whether err only reports the end of ctx: every branch of the error tree ends in the error or
// the cause of ctx.
func IsEndOf(ctx context.Context, err error) bool {
	if ctx.Err() == nil || err == nil {
		return false
	}
	ends := []error{ctx.Err(), context.Cause(ctx)}
	for _, end := range ends {
		if isSame(err, end) {
			return true
		}
	}
	switch wrapper := err.(type) { //nolint:errorlint // IsEndOf walks the tree
	case interface{ Unwrap() error }:
		return IsEndOf(ctx, wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		some := false
		for _, branch := range wrapper.Unwrap() {
			if !IsEndOf(ctx, branch) {
				return false
			}
			some = true
		}
		return some
	default:
		return matchesEndOf(ctx, err) // a leaf may have a method Is
	}
}

// matchesEndOf reports whether err matches the error or the cause of an ended ctx. A cause that can't be compared does not match, because
// errors.Is may panic.
func matchesEndOf(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return errors.Is(err, ctx.Err()) || isComparable(cause) && errors.Is(err, cause)
}

// isSame compares with ==, but returns false for incomparable values, for which == panics.
func isSame(err, end error) bool {
	return isComparable(end) && err == end //nolint:errorlint // only this very error
}

// isComparable looks at the value, because its type does not show what the interfaces in its fields have.
func isComparable(err error) bool { return reflect.ValueOf(err).Comparable() }

// Both joins two errors in a single line of text. Either may be nil.
func Both(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	default:
		return &joinedError{first, second, "; "}
	}
}

// LossAndError joins a loss with the error that the holder's function returned after the loss, in a single line
// of text. Either may be nil.
func LossAndError(loss, err error) error {
	if loss == nil || err == nil {
		return Both(loss, err)
	}
	return &joinedError{loss, err, "; the function returned: "}
}

type joinedError struct {
	first, second error
	between       string
}

func (b *joinedError) Error() string   { return b.first.Error() + b.between + b.second.Error() }
func (b *joinedError) Unwrap() []error { return []error{b.first, b.second} }

// TryMethods calls the methods of a user's error, and panics if they panic, as those of a nil pointer may. Call TryMethods where a panic
// is contained: afterwards the library may use the error anywhere.
func TryMethods(err error) {
	if err == nil {
		return
	}
	_ = err.Error()
	_ = errors.Is(err, errUnmatched)
	_, _ = AsType[*unmatched](err)
}

// unmatched is a type of errors without any errors, so that TryMethods walks through the whole tree of an error.
type unmatched struct{ error }

var errUnmatched error = &unmatched{}

// IsUsable reports whether the methods of a user's error can be called without a panic.
func IsUsable(err error) (ok bool) {
	defer func() { ok = recover() == nil }()
	TryMethods(err)
	return true
}
