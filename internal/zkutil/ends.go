package zkutil

import (
	"context"
	"reflect"
)

// IsEndOf reports whether err only reports the end of ctx: every branch of its tree ends in the error
// of ctx or in its cause.
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
	switch wrapper := err.(type) { //nolint:errorlint // this walks the tree itself
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
		return IsAny(err, ends...) // a leaf may have a method Is
	}
}

// isSame is ==, which panics for types that can't be compared.
func isSame(err, end error) bool {
	return reflect.TypeOf(end).Comparable() && err == end //nolint:errorlint // no more than that error
}

// Both joins two errors in one line. Either may be nil.
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

// LossAndError joins a loss with the error that the holder's function has returned after it, in one
// line. Either may be nil.
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
