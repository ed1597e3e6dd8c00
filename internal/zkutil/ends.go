package zkutil

import (
	"context"
	"reflect"
)

// IsEndOf reports whether err says no more than that ctx has ended: each branch of the tree
// that it is leads to the error of ctx or to its cause.
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
		return isAny(err, ends...) // a leaf may have a method Is
	}
}

// isSame is ==, which must not meet values that can't be compared.
func isSame(err, end error) bool {
	return reflect.TypeOf(end).Comparable() && err == end //nolint:errorlint // no more than that error
}

// Both joins two errors, either of which may be nil, in one line.
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

// LossAndError joins a loss with what the function that was told of it has returned, in one
// line, the cause first. Either may be nil.
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
