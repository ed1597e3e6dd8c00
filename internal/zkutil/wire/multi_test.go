package wire

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// The answer names the refused check. An answer that ends early, or has an unrequested part, is malformed.
func TestAnswerToChecks(t *testing.T) {
	part := func(e *proto.Encoder, op, code int32) *proto.Encoder { return e.Int32(op).Bool(false).Int32(code) }
	refused := func(e *proto.Encoder, code int32) *proto.Encoder { return part(e, proto.OpError, code).Int32(code) }
	end := func(e *proto.Encoder) []byte { return e.Int32(proto.OpError).Bool(true).Int32(unused).Body() }

	a, ok := decodeAnswer(proto.OpMulti, proto.CodeOK, end(part(part(body(), proto.OpCheck, 0), proto.OpCheck, 0)))
	require.True(t, ok)
	require.NoError(t, a.Err)
	require.Equal(t, -1, a.Refused)

	answer := end(refused(refused(refused(body(), proto.CodeOK), proto.CodeNoNode), proto.CodeRuntimeInconsistency))
	a, ok = decodeAnswer(proto.OpMulti, proto.CodeOK, answer)
	require.True(t, ok)
	require.Equal(t, zk.ErrNoNode, a.Err)
	require.Equal(t, 1, a.Refused)
	for n := range answer {
		_, ok := decodeAnswer(proto.OpMulti, proto.CodeOK, answer[:n])
		require.False(t, ok, "an answer of %d bytes, which is cut", n)
	}
	for name, kind := range map[string]int32{"a write without its stat": proto.OpSetData, "a part that was not asked for": proto.OpCreate} {
		_, ok = decodeAnswer(proto.OpMulti, proto.CodeOK, end(part(body(), kind, 0)))
		require.False(t, ok, name)
	}
	a, ok = decodeAnswer(proto.OpMulti, proto.CodeOK, end(part(part(body(), proto.OpCheck, 0), proto.OpSetData, 0).Stat(zk.Stat{Version: 7})))
	require.True(t, ok)
	require.EqualValues(t, 7, a.Stat.Version)
	a, ok = decodeAnswer(proto.OpMulti, proto.CodeOK, end(part(part(body(), proto.OpCheck, 0), proto.OpDelete, 0)))
	require.True(t, ok)
	require.NoError(t, a.Err)
	a, ok = decodeAnswer(proto.OpMulti, proto.CodeOK, end(part(part(body(), proto.OpCreate, 0).String("/a/1"), proto.OpCreate, 0).String("/b/2")))
	require.True(t, ok)
	require.Equal(t, []string{"/a/1", "/b/2"}, a.Created)
}
