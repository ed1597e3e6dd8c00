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

// What a failed call means: whether to repeat it, and whether it may have been done.
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
		// Answers that say nothing that we know to be final.
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
