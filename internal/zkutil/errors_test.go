package zkutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The meaning of a failed call: whether to repeat it, and whether the server may have executed it.
func TestClassesOfErrors(t *testing.T) {
	for _, test := range []struct {
		err                   error
		transient, unanswered bool
	}{
		{nil, false, false},
		// Answers.
		{zk.ErrNoNode, false, false},
		{zk.ErrNoAuth, false, false},
		{zk.ErrBadVersion, false, false},
		{zk.ErrNoChildrenForEphemerals, false, false},
		{zk.ErrNodeExists, false, false},
		{zk.ErrNotEmpty, false, false},
		{zk.ErrInvalidACL, false, false},
		{zk.ErrInvalidFlags, false, false},
		{zk.ErrAuthFailed, false, false},
		{zk.ErrReconfigDisabled, false, false},
		{zk.ErrBadArguments, false, false},
		{zk.ErrAPIError, false, false},
		{errors.New("unknown error: -6"), false, false},
		{errors.New("unknown error: -120"), false, false},            // ephemeral znode on a local session
		{errors.New("unknown error: -124"), false, false},            // session without SASL
		{Explained(errors.New("unknown error: -125")), false, false}, // quota exceeded
		// Answers that are not known to be final.
		{errors.New("unknown error: -66"), true, false},
		// Never sent.
		{zk.ErrInvalidPath, false, false},
		{zk.ErrShortBuffer, false, false},
		{zk.ErrNoServer, true, false},
		{ErrUnavailable, true, false},
		{fmt.Errorf("%w: %w", ErrUnavailable, io.EOF), true, false},
		// Refused for now, and not executed.
		{zk.ErrSessionMoved, true, false},
		// Perhaps executed.
		{zk.ErrConnectionClosed, true, true},
		{zk.ErrSessionExpired, true, true},
		{zk.ErrClosing, true, true},
		{io.EOF, true, true},
		{io.ErrClosedPipe, true, true},
		{net.ErrClosed, true, true},
		{&net.OpError{Op: "write", Err: errPipe}, true, true},
		{errors.New("unknown error: -4"), true, true},
		{errors.New("unknown error: -7"), true, true},
		{errors.New("unknown error: -1"), true, true},
		{errors.New("unknown error: -122"), true, true}, // request timeout
		{errors.New("unknown error: -127"), true, true}, // throttled
		// Ours.
		{ErrClosed, false, true},
		{ErrSequenceExhausted, false, true},
		{ContenderLost(ErrSessionLost), false, true},
		{context.Canceled, false, true},
		{context.DeadlineExceeded, false, true},
	} {
		require.Equal(t, test.transient, IsTransient(test.err), "transient: %v", test.err)
		require.Equal(t, test.unanswered, IsUnanswered(test.err), "unanswered: %v", test.err)
		if test.err != nil {
			wrapped := fmt.Errorf("create: %w", test.err)
			require.Equal(t, test.transient, IsTransient(wrapped), "wrapped, transient: %v", test.err)
			require.Equal(t, test.unanswered, IsUnanswered(wrapped), "wrapped, unanswered: %v", test.err)
		}
	}
}

// A code without an error in zk.Conn is shown as words, for any other text, and stays matchable.
func TestCodesAreShownAsWords(t *testing.T) {
	for code, words := range map[int]string{-6: "does not know the operation", -7: "timed out", -125: "quota", -127: "throttles"} {
		err := fmt.Errorf("unknown error: %d", code)
		for _, explained := range []error{Explained(err), Explained(fmt.Errorf("create: %w", err)), Explained(fmt.Errorf("create: %w", Explained(err)))} {
			require.ErrorContains(t, explained, words)
			require.NotContains(t, explained.Error(), "unknown error")
			require.ErrorIs(t, explained, err)
			require.Equal(t, IsRefused(err), IsRefused(explained))
			require.Equal(t, IsUnimplemented(err), IsUnimplemented(fmt.Errorf("(last failure: %w)", explained)))
		}
	}
	once := Explained(errors.New("unknown error: -125"))
	require.EqualError(t, Explained(fmt.Errorf("create: %w", once)), "create: "+once.Error())
	require.EqualError(t, Explained(errors.New("create: unknown error: -66")), "create: unknown error: -66", "there are no words")
	required := Explained(errors.New("unknown error: -124"))
	require.ErrorIs(t, required, ErrLoginRefused)
	require.NotContains(t, required.Error(), "unknown error")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errPipe)
	err := Interrupted(ctx, zk.ErrNoServer)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errPipe)
	require.ErrorIs(t, err, zk.ErrNoServer)

	plain, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, context.Canceled, Interrupted(plain, nil))
	require.Equal(t, context.Canceled, Interrupted(plain, context.Canceled), "not told twice")
}

func TestLostPlaceKeepsItsCause(t *testing.T) {
	err := ContenderLost(ErrNodeDeleted)
	require.ErrorIs(t, err, ErrContenderLost)
	require.ErrorIs(t, err, ErrNodeDeleted)
}

var errPipe = errors.New("broken pipe")

// fields is an error that can't be compared.
type fields []string

func (f fields) Error() string { return fmt.Sprint([]string(f)) }

// wrapped is an error of a comparable type around an error that may not be comparable.
type wrapped struct{ err error }

func (wrapped) Error() string   { return "wrapped" }
func (w wrapped) Unwrap() error { return w.err }

// canceled is an error like package net's, which matches a context's without being one.
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

// A cause that can't be compared causes no panic, even if its type does not show that. Package errgroup passes on any error as
// the cause.
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
