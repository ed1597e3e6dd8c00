package zkutil

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// fields is an error that can't be compared.
type fields []string

func (f fields) Error() string { return fmt.Sprint([]string(f)) }

// wrapped is an error whose type can be compared, while the error in it may be one that can't.
type wrapped struct{ err error }

func (wrapped) Error() string   { return "wrapped" }
func (w wrapped) Unwrap() error { return w.err }

// canceled is an error as package net has it: no context's, and says it is.
type canceled struct{}

func (canceled) Error() string        { return "operation was canceled" }
func (canceled) Is(target error) bool { return target == context.Canceled }

func TestIsEndOf(t *testing.T) {
	cause := fmt.Errorf("shutdown: %w", errPipe)
	ctx, cancel := context.WithCancelCause(t.Context())
	require.False(t, IsEndOf(ctx, context.Canceled), "it has not ended")
	cancel(cause)
	for _, err := range []error{
		context.Canceled, cause,
		canceled{},
		fmt.Errorf("job: %w", cause),
		errors.Join(cause, fmt.Errorf("a: %w, b: %w", ctx.Err(), errors.Join(cause))),
	} {
		require.True(t, IsEndOf(ctx, err), "%v", err)
	}
	for _, err := range []error{
		nil, errPipe, context.DeadlineExceeded,
		fields{"a"},
		errors.Join(ctx.Err(), errPipe), errors.Join(cause, fields{"a"}),
		fmt.Errorf("%w (while %w)", ctx.Err(), context.DeadlineExceeded),
		errors.New("like it: " + ctx.Err().Error()),
	} {
		require.False(t, IsEndOf(ctx, err), "%v", err)
	}

	odd, stop := context.WithCancelCause(t.Context())
	stop(fields{"a"})
	require.NotPanics(t, func() { require.False(t, IsEndOf(odd, fields{"a"}), "it can't be compared") })
	require.True(t, IsEndOf(odd, odd.Err()))
}

// A cause that can't be compared causes no panic, also if its type does not show that. Package errgroup passes on any error as the cause.
func TestCauseThatCantBeCompared(t *testing.T) {
	for _, cause := range []error{fields{"a"}, wrapped{fields{"a"}}, &wrapped{fields{"a"}}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, isPointer := cause.(*wrapped) //nolint:errorlint // this very error
		require.NotPanics(t, func() { require.Equal(t, isPointer, IsEndOf(ctx, cause)) })
		require.NotPanics(t, func() {
			mayRepeat := func(err error) bool { return errors.Is(err, errPipe) }
			_, err := RepeatWhile(ctx, Retry{InitialInterval: 1, MaxInterval: 1}, mayRepeat, func() (int, error) { return 0, errPipe })
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// A cause whose methods panic is left out of the errors.
func TestCauseWhoseMethodsPanic(t *testing.T) {
	for _, cause := range []error{(*wrapped)(nil), fmt.Errorf("a: %w", (*wrapped)(nil))} {
		ctx, cancel := context.WithCancelCause(t.Context())
		require.NoError(t, CauseOf(ctx))
		cancel(cause)
		require.NotPanics(t, func() {
			require.EqualError(t, Interrupted(ctx, nil), "context canceled")
			require.Equal(t, context.Canceled, CauseOf(ctx))
		})
	}
}

func TestErrorsInOneLine(t *testing.T) {
	require.NoError(t, Both(nil, nil))
	require.Equal(t, errPipe, Both(errPipe, nil))
	require.Equal(t, errPipe, LossAndError(nil, errPipe))
	err := LossAndError(ErrSessionLost, context.Canceled)
	require.EqualError(t, err, "session lost; the function returned: context canceled")
	require.ErrorIs(t, err, ErrSessionLost)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, Both(errPipe, ErrClosed), "broken pipe; closed")
}
