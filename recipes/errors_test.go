package recipes

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

func TestOpError(t *testing.T) {
	var err error = &OpError{Op: "mutex: acquire", Path: "/locks/a", Err: fmt.Errorf("create: %w", zk.ErrNoAuth)}
	require.EqualError(t, err, "mutex: acquire /locks/a: create: zk: not authenticated")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	var op *OpError
	require.ErrorAs(t, fmt.Errorf("deduct: %w", err), &op)
	require.Equal(t, "/locks/a", op.Path)
}

func TestSentinelsAreDistinct(t *testing.T) {
	all := []error{
		ErrNotAcquired, ErrNotHeld, ErrSessionLost, ErrSuspended, ErrReleased, ErrNodeDeleted, ErrClosed,
		ErrSequenceExhausted, ErrInvalidArgument, ErrInvalidPath,
		ErrNotStarted, ErrAlreadyStarted, ErrStepDownGrace, ErrNodeNotDeleted,
	}
	for i, a := range all {
		require.NotEmpty(t, a.Error())
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}

func TestConnectionStateNames(t *testing.T) {
	for state, name := range map[ConnectionState]string{
		Suspended: "suspended", Connected: "connected", Reconnected: "reconnected", Lost: "lost", Closed: "closed",
	} {
		require.Equal(t, name, state.String())
		require.Equal(t, name, fmt.Sprint(state))
	}
}

// A caller's generics may make a zero Access without naming it; it opens nothing.
func TestAccessCantBeForged(t *testing.T) {
	client := &Client{session: new(zkutil.Session)}
	require.Panics(t, func() { _, _, _ = forge(client.Attach) })
	require.Panics(t, func() { NewLease(nil) })
}

// forge calls attach with the zero value of a type that it can't name.
func forge[A, S any](attach func(A, string) (S, string, error)) (S, string, error) {
	var access A
	return attach(access, "/")
}

func TestAttach(t *testing.T) {
	session := new(zkutil.Session)
	for _, test := range []struct{ namespace, path, want string }{
		{"", "/", "/"}, {"", "/a", "/a"}, {"/app", "/", "/app"}, {"/app", "/a/b", "/app/a/b"},
	} {
		got, path, err := (&Client{session, test.namespace}).Attach(zkutil.RecipeAccess(), test.path)
		require.NoError(t, err)
		require.Same(t, session, got)
		require.Equal(t, test.want, path)
	}
	for _, path := range []string{"", "a", "/a/", "/zookeeper"} {
		_, _, err := (&Client{session: session}).Attach(zkutil.RecipeAccess(), path)
		require.ErrorIs(t, err, ErrInvalidPath)
	}
	for _, client := range []*Client{nil, {}} {
		_, _, err := client.Attach(zkutil.RecipeAccess(), "/a")
		require.ErrorContains(t, err, "the client is nil")
		require.ErrorIs(t, err, ErrInvalidArgument)
	}
}

func TestConnectIsBoundedByItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Connect(ctx, []string{"localhost:1"}, WithDialer(noDial))
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpErrorText(t *testing.T) {
	cause := errors.New("cause")
	for path, text := range map[string]string{
		"":         "op: cause",
		"/a b":     "op /a b: cause",
		"/ä":       "op /ä: cause",
		"/a\x00\n": `op "/a\x00\n": cause`,
	} {
		require.Equal(t, text, (&OpError{Op: "op", Path: path, Err: cause}).Error())
	}
}

// Package fmt prints all that a pointer points to for a verb that suits none. A client
// points to its credentials and to the id of its session.
func TestPrintedClientKeepsItsSecrets(t *testing.T) {
	client := &Client{session: new(zkutil.Session)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%t"} {
		require.Equal(t, "recipes.Client(suspended)", fmt.Sprintf(verb, client), verb)
	}
	require.Equal(t, "recipes.Client(suspended)", client.String())
	require.Equal(t, "recipes.Client(nil)", fmt.Sprint((*Client)(nil)))
}
