package meter

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

func request(xid, op int32) []byte { return proto.NewEncoder().Int32(xid).Int32(op).Frame() }

func answer(xid int32) []byte { return proto.NewEncoder().Int32(xid).Int64(0).Int32(0).Frame() }

// Two requests in one flush are one round trip, however the bytes arrive. Two requests of which the second waits for
// the first are two.
func TestRequestsOfOneFlushAreOneTrip(t *testing.T) {
	for _, piece := range []int{1, 3, 1000} {
		var counts tally
		l := &line{tally: &counts}
		pass := func(to func([]byte), frames ...[]byte) {
			for part := range slices.Chunk(slices.Concat(frames...), piece) {
				to(part)
			}
		}
		pass(l.sent, request(0, 0)) // stands for the handshake
		pass(l.received, answer(0))
		pass(l.sent, request(-1001, proto.OpCreate2), request(-1002, proto.OpGetChildren))
		pass(l.received, answer(-1001), answer(proto.XidPing), answer(proto.XidEvent))
		pass(l.received, answer(-1002))
		pass(l.sent, request(proto.XidPing, proto.OpPing), request(1, proto.OpDelete))
		pass(l.received, answer(1))
		require.Equal(t, Counts{
			Handshakes: 1, Requests: map[string]int{"create2": 1, "getChildren": 1, "delete": 1},
			Answers: 3, Events: 1, Trips: 2, BytesUp: 3 * 12, BytesDown: 4 * 20,
		}, counts.snapshot(), "in pieces of %d bytes", piece)
	}
}
