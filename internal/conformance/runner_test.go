package conformance_test

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

func step(t *testing.T, text string) conformance.Step {
	t.Helper()
	s, err := conformance.ParseStep(text)
	require.NoError(t, err)
	return s
}

func TestUnreachableServerIsAnErrorNotADifference(t *testing.T) {
	dial := func() (net.Conn, error) { return nil, errors.New("nobody there") }
	err := conformance.Diff(dial, dial, 1, 10)
	require.ErrorContains(t, err, "nobody there")
	var difference *conformance.DiffError
	require.NotErrorAs(t, err, &difference)
	require.Error(t, conformance.NewRunner(dial).Close())
}

func TestInvalidStepsAreReported(t *testing.T) {
	r := conformance.NewRunner(serve(t))
	require.Equal(t, []string{"a not connected"}, r.Play(step(t, "a exists /x")))
	require.Equal(t, []string{"a not connected"}, r.Play(step(t, "b reconnect as=a")))
	require.Len(t, r.Play(step(t, "a connect")), 2)
	for _, text := range []string{
		"a fly", "a exists $0", "a delete /x v=many", "a create /x flags=x", "a create /x acl=world", "a create /x acl=world:anyone:q",
		"a op code=x", "a op code=1 hex=0", "a bytes hex=x", "c connect timeout=x", "c connect zxid=x", "a exists /x truncate=x",
		"a createTTL /x ttl=x", "a multi fly /x",
	} {
		lines := r.Play(step(t, text))
		require.NotEmpty(t, lines, text)
		require.Contains(t, lines[0], "! "+text)
	}
	require.NoError(t, r.Close())
}

func TestCloseRestoresTheServer(t *testing.T) {
	dial := serve(t)
	r := conformance.NewRunner(dial)
	for _, text := range []string{
		"a connect", "b connect", "a auth digest=u:p",
		"a create /x", "a create /x/y acl=auth::cdrwa", "a create /x/y/z", "b create /x/e ephemeral",
		"a setACL /x acl=world:anyone:ra", "b drop", "c connect", "c close", "a connect",
	} {
		r.Play(step(t, text))
	}
	require.NoError(t, r.Close())
	r = conformance.NewRunner(dial)
	r.Play(step(t, "a connect"))
	require.Equal(t, "a ok z+0 [zookeeper]", r.Play(step(t, "a getChildren /"))[0])
	require.NoError(t, r.Close())
}
