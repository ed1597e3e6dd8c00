package session

import (
	"io"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A watch for a creation is set by an answer that there is no znode. All other watches are set by a success.
func TestWhatSetsAWatch(t *testing.T) {
	for _, test := range []struct {
		op        int32
		err, want error
	}{
		{proto.OpGetData, nil, nil},
		{proto.OpGetData, zk.ErrNoNode, zk.ErrNoNode},
		{proto.OpGetChildren2, nil, nil},
		{proto.OpGetChildren2, zk.ErrNoAuth, zk.ErrNoAuth},
		{proto.OpExists, zk.ErrNoNode, nil},
		{proto.OpExists, nil, zkutil.ErrStale},
		{proto.OpExists, zk.ErrNoAuth, zk.ErrNoAuth},
		{proto.OpExists, io.EOF, io.EOF},
	} {
		require.Equal(t, test.want, (&call{Request: wire.Request{Op: test.op}}).watchError(test.err), "%+v", test)
	}
}

// A waiter may ask before or after the blocker becomes a hold of its own session.
func TestHoldsThatAreFirst(t *testing.T) {
	s := &Session{}
	for _, isEarly := range []bool{true, false} {
		w := &Watch{}
		if isEarly {
			before := s.OnFirst(w)
			require.False(t, zkutil.IsClosed(before))
			require.Equal(t, before, s.OnFirst(w))
		}
		require.False(t, s.IsFirst(w))
		w.noteFirstLocked()
		w.noteFirstLocked()
		require.True(t, s.IsFirst(w))
		require.True(t, zkutil.IsClosed(s.OnFirst(w)))
	}
}

// Work of one name is shown until the last of it ends.
func TestNamesOfWork(t *testing.T) {
	l := &lifecycle{s: &Session{}, workNames: map[string]int{}}
	l.countWorkLocked("b", 1)
	l.countWorkLocked("a", 1)
	l.countWorkLocked("a", 1)
	require.Equal(t, "a, b", l.describeWorks())
	l.countWorkLocked("a", -1)
	require.Equal(t, "a, b", l.describeWorks())
	l.countWorkLocked("a", -1)
	l.countWorkLocked("b", -1)
	require.Empty(t, l.describeWorks())
	require.Empty(t, l.workNames)
}
