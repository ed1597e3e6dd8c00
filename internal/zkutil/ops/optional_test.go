package ops

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

var errUnimplemented = errors.New("unknown error: -6")

// Each optional operation has another that the client uses in its place, or none.
func TestStandIns(t *testing.T) {
	for op, test := range map[int32]struct {
		isOptional bool
		standIn    int32
	}{
		proto.OpCreate2: {true, proto.OpCreate}, proto.OpCreateContainer: {true, proto.OpCreate}, proto.OpRemoveWatches: {true, proto.OpRemoveWatches},
		proto.OpCreate: {false, proto.OpCreate}, proto.OpMulti: {false, proto.OpMulti},
	} {
		require.Equal(t, test.isOptional, IsOptional(op))
		require.Equal(t, test.standIn, StandIn(op))
	}
	for _, op := range optional {
		require.True(t, IsOptional(op))
	}
	require.True(t, IsAnswered(nil))
	require.True(t, IsAnswered(zk.ErrNodeExists))
	require.False(t, IsAnswered(zk.ErrConnectionClosed))
}

// What the outcomes of an operation show about a server.
func TestKnowledgeOfAServer(t *testing.T) {
	lost := zk.ErrConnectionClosed
	for name, test := range map[string]struct {
		outcomes []error // each of a connection of its own
		want     Knowledge
	}{
		"nothing":                       {nil, Knowledge{}},
		"a success":                     {[]error{nil}, Knowledge{IsKnown: true}},
		"a refusal for another reason":  {[]error{zk.ErrNodeExists}, Knowledge{IsKnown: true}},
		"bad arguments":                 {[]error{zk.ErrBadArguments, zk.ErrBadArguments}, Knowledge{}},
		"another failure":               {[]error{io.EOF, io.EOF, io.EOF}, Knowledge{}},
		"unimplemented":                 {[]error{errUnimplemented}, Knowledge{IsLacking: true}},
		"one loss":                      {[]error{lost}, Knowledge{lost: 1}},
		"two losses":                    {[]error{lost, lost}, Knowledge{IsLacking: true, lost: 2}},
		"a success between losses":      {[]error{lost, nil, lost}, Knowledge{IsKnown: true, lost: 1}},
		"four losses though known":      {[]error{nil, lost, lost, lost, lost}, Knowledge{IsKnown: true, lost: 4}},
		"five losses though known":      {[]error{nil, lost, lost, lost, lost, lost}, Knowledge{IsKnown: true, IsLacking: true, lost: 5}},
		"a success after the operation": {[]error{lost, lost, nil}, Knowledge{IsKnown: true, IsLacking: true}},
	} {
		o := NewOptional()
		o.SetServer("a:1", false)
		for _, err := range test.outcomes {
			o.NoteOutcome(proto.OpCreate2, o.Of(proto.OpCreate2), err)
		}
		test.want.server = "a:1"
		require.Equal(t, test.want, o.Of(proto.OpCreate2), name)
		require.Equal(t, test.want, o.OfServer("a:1", proto.OpCreate2), name)
		require.Equal(t, Knowledge{server: "b:1"}, o.OfServer("b:1", proto.OpCreate2), "another server")
	}
}

// Several requests that one connection loses count once.
func TestLossesOfOneConnectionCountOnce(t *testing.T) {
	o := NewOptional()
	o.SetServer("a:1", false)
	before := o.Of(proto.OpCreate2)
	for range 10 {
		o.NoteOutcome(proto.OpCreate2, before, zk.ErrConnectionClosed)
	}
	require.Equal(t, Knowledge{server: "a:1", lost: 1}, o.Of(proto.OpCreate2))
	o.NoteOutcome(proto.OpCreate2, o.Of(proto.OpCreate2), zk.ErrConnectionClosed)
	require.True(t, o.Of(proto.OpCreate2).IsLacking)
	require.False(t, o.Of(proto.OpRemoveWatches).IsLacking)
}

// A server that lacks an operation lacks all later ones, except those that it was seen to know.
func TestLaterOperationsAreLackingToo(t *testing.T) {
	for op, want := range map[int32][]bool{
		proto.OpCreate2: {true, true, true}, proto.OpRemoveWatches: {false, true, true}, proto.OpCreateContainer: {false, false, true},
	} {
		for _, isLastKnown := range []bool{false, true} {
			o := NewOptional()
			o.SetServer("a:1", false)
			if isLastKnown {
				o.NoteKnown(proto.OpCreateContainer, "a:1")
			}
			o.NoteOutcome(op, o.Of(op), errUnimplemented)
			var got []bool
			for _, other := range optional {
				got = append(got, o.Of(other).IsLacking)
			}
			require.Equal(t, []bool{want[0], want[1], want[2] && (!isLastKnown || op == proto.OpCreateContainer)}, got, "%s", proto.OpName(op))
		}
	}
	o := NewOptional()
	o.NoteLacking(proto.OpCreate2, Knowledge{server: "a:1"})
	require.True(t, o.OfServer("a:1", proto.OpCreate2).IsLacking)
	require.False(t, o.OfServer("a:1", proto.OpCreateContainer).IsLacking)
}

// A server that resumes no session is asked for no optional operation, and nothing is learned from that.
func TestServersThatResumeNoSession(t *testing.T) {
	o := NewOptional()
	o.SetServer("a:1", true)
	for _, op := range optional {
		require.Equal(t, Knowledge{server: "a:1", IsLacking: true}, o.Of(op))
		require.False(t, o.OfServer("a:1", op).IsLacking)
	}
	o.SetServer("a:1", false)
	require.False(t, o.Of(proto.OpCreate2).IsLacking)
}

// The servers that are remembered are bounded. Until then nothing is forgotten.
func TestServersThatAreRemembered(t *testing.T) {
	o := NewOptional()
	learn := func(i int) {
		o.SetServer(fmt.Sprint(i), false)
		for _, op := range optional {
			o.NoteOutcome(op, o.Of(op), nil)
		}
	}
	for i := range maxServersKnown {
		learn(i)
	}
	require.Len(t, o.known, maxServersKnown*len(optional))
	require.True(t, o.OfServer("0", proto.OpCreate2).IsKnown)
	learn(maxServersKnown)
	require.Len(t, o.known, len(optional))
	require.False(t, o.OfServer("0", proto.OpCreate2).IsKnown)
}
