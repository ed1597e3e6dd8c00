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
		{errors.New("unknown error: -12"), true, true},
		{errors.New("unknown error: -119"), true, true},
		{errors.New("unknown error: -7"), true, true},
		{errors.New("unknown error: -1"), true, true},
		{errors.New("unknown error: -122"), true, true}, // request timeout
		{errors.New("unknown error: -127"), true, true}, // throttled
		// Ours.
		{ErrClosed, false, true},
		{ErrSequenceExhausted, false, true},
		{ErrOtherLayout, false, true},
		{ErrUnsupported, false, true},
		{ErrSessionFull, false, false},
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

// An error with methods that panic is not used, whichever method it is, and wherever in the tree of an error.
func TestUsableErrors(t *testing.T) {
	for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
		for _, err := range []error{panicking(method), wrapped{panicking(method)}, errors.Join(errPipe, panicking(method))} {
			if method == "Error" && errors.As(err, new(wrapped)) {
				continue // its text does not contain the other
			}
			require.False(t, IsUsable(err), "%s", method)
		}
	}
	for _, err := range []error{nil, errPipe, panicking(""), fields{"a"}, errors.Join(errPipe, canceled{})} {
		require.True(t, IsUsable(err))
	}
}

// panicking is an error of which the method with that name panics.
type panicking string

func (p panicking) panicIn(method string) {
	if string(p) == method {
		panic(method)
	}
}

func (p panicking) Error() string { p.panicIn("Error"); return "panicking" }
func (p panicking) Is(error) bool { p.panicIn("Is"); return false }
func (p panicking) As(any) bool   { p.panicIn("As"); return false }
func (p panicking) Unwrap() error { p.panicIn("Unwrap"); return nil }

// A refusal by an ACL names the znode, and matches zk.ErrNoAuth. Other errors are explained.
func TestDenied(t *testing.T) {
	err := Denied(fmt.Errorf("set: %w", zk.ErrNoAuth), "write", "/a\n")
	require.EqualError(t, err, `no permission to write "/a\n" (wrong credentials, or none that its ACL names)`)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Equal(t, zk.ErrNoNode, Denied(zk.ErrNoNode, "write", "/a"))
	require.ErrorContains(t, Denied(errors.New("unknown error: -127"), "write", "/a"), "throttles")
	require.NoError(t, Denied(nil, "write", "/a"))
	require.Equal(t, "/a", ParentOf("/a/b"))
	require.Equal(t, "/", ParentOf("/a"))
}

// An invalid argument has the text of its error, and matches both.
func TestInvalid(t *testing.T) {
	err := Invalid(errPipe)
	require.EqualError(t, err, "broken pipe")
	require.ErrorIs(t, err, errPipe)
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.NotErrorIs(t, err, ErrClosed)
}

// Codes tell what the server lacks.
func TestCodesOfAnswers(t *testing.T) {
	for code, test := range map[int]struct{ isUnimplemented, isNoWatcher, isUnknown bool }{
		-6: {isUnimplemented: true}, -121: {isNoWatcher: true, isUnknown: true}, -66: {isUnknown: true}, -7: {}, -125: {},
	} {
		err := fmt.Errorf("remove: %w", fmt.Errorf("unknown error: %d", code))
		require.Equal(t, test.isUnimplemented, IsUnimplemented(err), "%d", code)
		require.Equal(t, test.isNoWatcher, IsNoWatcher(err), "%d", code)
		require.Equal(t, test.isUnknown, IsUnknownAnswer(err), "%d", code)
	}
	for _, err := range []error{nil, zk.ErrNoNode, errors.New("unknown error: x"), errors.New("unknown error: ")} {
		require.False(t, IsUnimplemented(err) || IsNoWatcher(err) || IsUnknownAnswer(err), "%v", err)
	}
}

// The end of a call names the cause once, the latest failure if it is transient, and just the client's end if the client was closed.
func TestTextOfAnInterruption(t *testing.T) {
	for _, test := range []struct {
		cause, last error
		text        string
	}{
		{nil, nil, "context canceled"},
		{context.Canceled, nil, "context canceled"},
		{errPipe, nil, "context canceled: broken pipe"},
		{errPipe, zk.ErrNoServer, "context canceled: broken pipe (last failure: " + zk.ErrNoServer.Error() + ")"},
		{nil, zk.ErrNoServer, "context canceled (last failure: " + zk.ErrNoServer.Error() + ")"},
		{nil, zk.ErrNoAuth, "context canceled"},
		{nil, fmt.Errorf("a: %w", context.Canceled), "context canceled"},
		{ErrShut, zk.ErrNoServer, ErrClosed.Error()},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(test.cause)
		require.EqualError(t, Interrupted(ctx, test.last), test.text)
	}
}
