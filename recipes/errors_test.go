package recipes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
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

// States are converted to those of a session and back, so both have the same numbers.
func TestConnectionStatesAreThoseOfASession(t *testing.T) {
	require.Equal(t,
		[]connstate.State{connstate.Suspended, connstate.Connected, connstate.Reconnected, connstate.Lost, connstate.Closed},
		[]connstate.State{connstate.State(Suspended), connstate.State(Connected), connstate.State(Reconnected), connstate.State(Lost), connstate.State(Closed)})
}

// Every method of the public types can be called by users. None takes or returns a type of an internal package.
func TestMethodsNameNoInternalType(t *testing.T) {
	for _, public := range []any{new(Client), new(Lease), new(OpError), new(WaitError), new(PanicError), Connected} {
		of := reflect.TypeOf(public)
		for i := range of.NumMethod() { // with the iterators of reflect, Go 1.25 could not build this
			method := of.Method(i)
			for n := range method.Type.NumIn() {
				require.NotContains(t, packageOf(method.Type.In(n)), "/internal/", method.Name)
			}
			for n := range method.Type.NumOut() {
				require.NotContains(t, packageOf(method.Type.Out(n)), "/internal/", method.Name)
			}
		}
	}
}

// packageOf returns the package of a named type, or of the element type of a pointer, slice or channel.
func packageOf(t reflect.Type) string {
	for t.PkgPath() == "" && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Chan}, t.Kind()) {
		t = t.Elem()
	}
	return t.PkgPath()
}

func TestAttach(t *testing.T) {
	session := new(session.Session)
	for _, test := range []struct{ namespace, path, want string }{
		{"", "/", "/"}, {"", "/a", "/a"}, {"/app", "/", "/app"}, {"/app", "/a/b", "/app/a/b"},
	} {
		got, path, err := (&Client{session: session, namespace: test.namespace}).attach(test.path)
		require.NoError(t, err)
		require.Same(t, session, got)
		require.Equal(t, test.want, path)
	}
	for _, path := range []string{"", "a", "/a/", "/zookeeper"} {
		_, _, err := (&Client{session: session}).attach(path)
		require.ErrorIs(t, err, ErrInvalidPath)
	}
	for text, client := range map[string]*Client{"the client is nil": nil, "the client is a zero value; use recipes.Connect": {}} {
		_, _, err := client.attach("/a")
		require.EqualError(t, err, text)
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

func TestClientText(t *testing.T) {
	client := &Client{session: new(session.Session)}
	for _, verb := range []string{"%v", "%+v", "%s"} {
		require.Equal(t, "recipes.Client(suspended)", fmt.Sprintf(verb, client), verb)
	}
	require.Equal(t, "recipes.Client(nil)", fmt.Sprint((*Client)(nil)))
}

// The first of the queue waits for the server alone, and is not behind itself.
func TestWaitErrorText(t *testing.T) {
	holder := Participant{ID: "web 3", Path: "/locks/a/1"}
	for want, err := range map[string]*WaitError{
		"not acquired after 5s: no time":                                             {},
		"not acquired after 5s in position 1: no time":                               {Position: 1},
		`not acquired after 5s in position 1, behind "web 3" at /locks/a/1: no time`: {Position: 1, Holder: holder}, // of a semaphore
		"not acquired after 5s in position 3, behind /locks/a/1: no time":            {Position: 3, Holder: Participant{Path: holder.Path}},
	} {
		err.Waited, err.Err = 5*time.Second, errors.New("no time")
		require.EqualError(t, err, want)
	}
}

// A login that a server refuses with a null token names the likely reason: at first that the server has no such login, later the password.
func TestNullTokensOfALogin(t *testing.T) {
	for step, want := range map[int]string{1: "offers no SASL login", 2: "by the server: wrong user or password", 3: "by the server: wrong user or password"} {
		login, err := DigestMD5("user", "secret").Begin(t.Context(), "a:1")
		require.NoError(t, err)
		response, isDone, err := login.Respond(t.Context(), nil)
		require.NoError(t, err)
		require.False(t, isDone)
		require.Equal(t, []byte{}, response, "an empty message")
		require.Contains(t, login.Explain(), "Kerberos alone")
		for range step {
			response, isDone, err = login.Respond(t.Context(), nil)
		}
		require.ErrorIs(t, err, ErrLoginRefused)
		require.ErrorContains(t, err, want)
		require.False(t, isDone)
		require.Nil(t, response)
		require.Equal(t, "wrong user or password", login.Explain())
	}
}
