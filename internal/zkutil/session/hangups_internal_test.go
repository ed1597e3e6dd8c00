package session

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A hang-up is blamed on the earliest unanswered request: the later ones have not been looked at.
func TestHangUpIsBlamedOnTheEarliestRequest(t *testing.T) {
	for _, isBehind := range []bool{false, true} {
		h, now := newHangUps(), time.Now()
		var err error
		for epoch := range uint64(2 * enoughHangUps) {
			c := &call{Request: wire.Request{Op: proto.OpSetData}, s: &Session{}, ticket: ticket{id: 1, epoch: epoch + 1}}
			err = h.judge(c, wire.Answer{Err: zk.ErrConnectionClosed, SentAt: now, IsBehind: isBehind}, now)
		}
		require.Equal(t, !isBehind, zkutil.IsAny(err, zkutil.ErrUnsupported))
	}
}
