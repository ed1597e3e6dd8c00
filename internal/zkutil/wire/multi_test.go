package wire

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// zk.Conn has no MultiRead. Real servers answer the same frames in own.txt of the conformance cases.
func TestMultiRead(t *testing.T) {
	frame := appendFrame(nil, firstXid, &Request{Op: proto.OpMultiRead, Reads: []string{"/a", "/b"}})
	read := func(e *proto.Encoder, path string) *proto.Encoder {
		return e.Int32(proto.OpGetChildren).Bool(false).Int32(-1).String(path).Bool(false)
	}
	end := func(e *proto.Encoder) *proto.Encoder { return e.Int32(proto.OpError).Bool(true).Int32(-1) }
	require.Equal(t, end(read(read(body().Int32(firstXid).Int32(proto.OpMultiRead), "/a"), "/b")).Frame(), frame)

	found := func(e *proto.Encoder) *proto.Encoder {
		return e.Int32(proto.OpGetChildren).Bool(false).Int32(0).Strings([]string{"x", ""})
	}
	refused := func(e *proto.Encoder, code int32) *proto.Encoder {
		return e.Int32(proto.OpError).Bool(false).Int32(code).Int32(code)
	}
	answer := end(refused(found(refused(body(), proto.CodeNoNode)), proto.CodeNoAuth)).Body()
	a, ok := decodeAnswer(proto.OpMultiRead, proto.CodeOK, answer)
	require.True(t, ok)
	require.Equal(t, []error{zk.ErrNoNode, nil, zk.ErrNoAuth}, a.Reads)
	require.NoError(t, a.Err)
	for n := range answer {
		_, ok := decodeAnswer(proto.OpMultiRead, proto.CodeOK, answer[:n])
		require.False(t, ok, "an answer of %d bytes, which is cut", n)
	}
	_, ok = decodeAnswer(proto.OpMultiRead, proto.CodeOK, end(body().Int32(proto.OpGetACL).Bool(false).Int32(0)).Body())
	require.False(t, ok, "a part that was not asked for")
}
