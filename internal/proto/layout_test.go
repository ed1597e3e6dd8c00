package proto

import (
	"math"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// bodies are answers as servers send them, by operation.
func bodies() map[int32][]byte {
	body := func() *Encoder { return NewEncoder() }
	return map[int32][]byte{
		OpCreate:       body().String("/a").Body(),
		OpExists:       body().Stat(zk.Stat{}).Body(),
		OpGetData:      body().Buffer([]byte("data")).Stat(zk.Stat{}).Body(),
		OpReconfig:     body().Buffer(nil).Stat(zk.Stat{}).Body(),
		OpGetACL:       body().ACL(append(zk.WorldACL(1), zk.WorldACL(2)...)).Stat(zk.Stat{}).Body(),
		OpGetChildren:  body().Strings([]string{"", "b", "ccc"}).Body(),
		OpGetChildren2: body().Strings([]string{"a", "", "ccc"}).Stat(zk.Stat{}).Body(),
		OpMulti: body().
			Int32(OpCreate).Bool(false).Int32(0).String("/a").
			Int32(OpSetData).Bool(false).Int32(0).Stat(zk.Stat{}).
			Int32(OpCheck).Bool(false).Int32(0).
			Int32(OpDelete).Bool(false).Int32(0).
			Int32(OpError).Bool(false).Int32(-101).Int32(-101).
			Int32(OpError).Bool(true).Int32(OpError).Body(),
		OpDelete: {},
	}
}

// acceptsBody shows a body to its layout in pieces of a size.
func acceptsBody(op int32, body []byte, size int) bool {
	l := newLayout(0, len(body), answerParts(op))
	for {
		n := min(size, len(body))
		if !l.Accept(body[:n]) {
			return false
		}
		if body = body[n:]; len(body) == 0 {
			return true
		}
	}
}

// A complete answer passes, also with more bytes behind it. An answer without its last byte does not.
// The size of the pieces makes no difference.
func TestLayoutOfAnswers(t *testing.T) {
	for op, body := range bodies() {
		for size := 1; size <= len(body)+1; size++ {
			require.True(t, acceptsBody(op, body, size), "%s in pieces of %d", OpName(op), size)
			require.True(t, acceptsBody(op, append(slices.Clip(body), 1, 2, 3), size), "%s with more behind", OpName(op))
			for n := range body {
				require.False(t, acceptsBody(op, body[:n], size), "%d bytes of %s in pieces of %d", n, OpName(op), size)
			}
		}
	}
}

// zk.Conn would make a slice of a negative length.
func TestListOfANegativeLength(t *testing.T) {
	for _, op := range []int32{OpGetChildren, OpGetChildren2, OpGetACL} {
		for _, length := range []int32{-1, math.MinInt32} {
			body := NewEncoder().Int32(length).Stat(zk.Stat{}).Body()
			require.False(t, acceptsBody(op, body, len(body)), "%d in %s", length, OpName(op))
		}
	}
}

// The length of a part of an unknown kind is unknown, too.
func TestMultiOfAnUnknownKind(t *testing.T) {
	body := NewEncoder().Int32(99).Bool(false).Int32(0).Int32(OpError).Bool(true).Int32(OpError).Body()
	require.False(t, acceptsBody(OpMulti, body, len(body)))
}

// A list can't have more elements than the smallest ones that fit into the frame, so that a frame takes no more memory than its size.
func TestLengthsOfLists(t *testing.T) {
	acl := []part{partInt, partText, partText}
	for _, test := range []struct {
		bytes, times int
		group        []part
		want         bool
	}{
		{24, 6, []part{partText}, true},
		{24, 7, []part{partText}, false},
		{27, 6, []part{partText}, true},
		{27, 7, []part{partText}, false},
		{24, 2, acl, true},
		{24, 3, acl, false},
		{35, 2, acl, true},
		{35, 3, acl, false},
		{0, 0, acl, true},
		{0, 1, acl, false},
		{24, -1, acl, false},
		{24, math.MaxInt32, acl, false},
	} {
		l := Layout{bodyLeft: test.bytes}
		require.Equal(t, test.want, l.expectGroups(test.times, test.group...), "%+v", test)
		if test.want {
			require.Len(t, l.fields, test.times*len(test.group))
		} else {
			require.Empty(t, l.fields)
		}
	}
	l := Layout{bodyLeft: 5}
	require.False(t, l.skipBytes(6))
	require.False(t, l.skipBytes(-1))
	require.True(t, l.skipBytes(5))
	require.Equal(t, Layout{skipLeft: 5}, l)
}
