package proto_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

func TestNames(t *testing.T) {
	require.Equal(t, "ok", proto.CodeName(proto.CodeOK))
	require.Equal(t, "NoNode", proto.CodeName(-101))
	require.Equal(t, "error -1000", proto.CodeName(-1000))
	require.Equal(t, "Deleted", proto.EventName(int32(zk.EventNodeDeleted)))
	require.Equal(t, "event 99", proto.EventName(99))
	require.Equal(t, "getChildren2", proto.OpName(proto.OpGetChildren2))
	require.Equal(t, "op 99", proto.OpName(99))

	seen := map[string]int32{}
	for code := int32(-200); code <= 0; code++ {
		name := proto.CodeName(code)
		require.NotContains(t, seen, name)
		seen[name] = code
	}
}
