package zktest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The conformance suite compares null strings with a real server's, except this one, because a real server never forgets the
// watch.
func TestLastingWatchOnANullPath(t *testing.T) {
	srv := zktest.NewServer(t)
	c := tcp(t).session(srv)
	for _, mode := range []int32{proto.WatchPersistent, proto.WatchRecursive} {
		c.did(request{proto.OpAddWatch, proto.NewEncoder().Int32(-1).Int32(mode).Body()})
	}
	c.did(create("/a", 0))
	c.hearsNothing()
	c = c.again(tcp(t).dial(srv))
	require.EqualValues(t, proto.CodeNoWatcher, c.call(request{proto.OpRemoveWatches, proto.NewEncoder().Int32(-1).Int32(proto.WatchersOfAny).Body()}).code)
}
