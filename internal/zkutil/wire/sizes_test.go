package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Each bound is tested at its limit and one past it.

// The longest request is sent, one that is a byte longer is not, and the requests beside it are.
func TestRequestsAroundTheLongest(t *testing.T) {
	request := func(length int) *Request {
		return &Request{Op: proto.OpSetData, Path: "/a", Data: make([]byte, length)}
	}
	const overhead = 4 + 8 + 4 + 2 + 4 + 4 // length, header, path, length of the data, version
	o := newOutbox()
	requests := []*Request{request(1), request(maxRequest - overhead + 1), request(2), request(maxRequest - overhead), request(3)}
	tooLong, ok := o.add(requests)
	require.True(t, ok)
	require.Equal(t, requests[1:2], tooLong)
	taken, ok := o.take(math.MaxInt)
	require.True(t, ok)
	var lengths []int
	for rest := taken.bytes; len(rest) > 0; {
		size := 4 + int(binary.BigEndian.Uint32(rest))
		require.Equal(t, taken.frames[len(lengths)].XID, int32(binary.BigEndian.Uint32(rest[4:])))
		lengths, rest = append(lengths, size-overhead), rest[size:]
	}
	require.Equal(t, []int{1, 2, maxRequest - overhead, 3}, lengths)
	require.Len(t, taken.frames, len(lengths))
}

// The buffers of a batch are kept up to a size and a number of frames.
func TestBuffersAroundTheLargestKept(t *testing.T) {
	for _, test := range []struct {
		bytes, frames int
		isKept        bool
	}{
		{maxSpare, maxSpareFrames, true}, {maxSpare + 1, 1, false}, {1, maxSpareFrames + 1, false},
	} {
		o := newOutbox()
		o.recycle(batch{make([]sentFrame, test.frames), make([]byte, test.bytes)})
		require.Equal(t, test.isKept, cap(o.spare.bytes) > 0, "%+v", test)
		require.Equal(t, test.isKept, cap(o.spare.frames) > 0, "%+v", test)
	}
}

// The xid below the least number is the highest of our own.
func TestXidsBeyondTheLast(t *testing.T) {
	require.EqualValues(t, math.MinInt32, nextXid(math.MinInt32+1))
	require.EqualValues(t, firstXid, nextXid(math.MinInt32))
	require.True(t, isOwnXid(nextXid(math.MinInt32)))
	o := newOutbox()
	o.xid = math.MinInt32 + 1
	_, ok := o.add([]*Request{{Op: proto.OpSync, Path: "/a"}, {Op: proto.OpSync, Path: "/b"}})
	require.True(t, ok)
	require.Equal(t, []int32{math.MinInt32, firstXid}, []int32{o.frames[0].XID, o.frames[1].XID})
	require.True(t, bytes.Contains(o.bytes, []byte("/b")))
}
