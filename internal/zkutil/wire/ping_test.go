package wire

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// The answer to a ping that overtakes the answer to an earlier request shows that the latter is lost, once it is T/3 late.
// Before that, a server that answers pings out of order is kept.
func TestPingAnsweredAheadOfARequest(t *testing.T) {
	const timeout = 4 * time.Second
	for until, isLost := range map[time.Duration]bool{timeout / 4: false, timeout / 3: true} {
		testkit.Bubble(t, func(t *testing.T) {
			s := openScript(t)
			s.wire.SetInUse(true)
			s.ask("/1")
			xid, op, _ := s.next()
			require.EqualValues(t, proto.OpGetData, op)
			for began := time.Now(); time.Since(began) <= until; {
				_, op, _ = s.next()
				require.EqualValues(t, proto.OpPing, op)
				s.deliver(answerFrame(proto.XidPing, 0, proto.CodeOK))
			}
			if isLost {
				require.Error(t, <-s.ended)
				require.True(t, isUnanswered(s.answer.errs()[0]))
			} else {
				s.deliver(dataFrame(xid, 1))
				synctest.Wait()
				require.Equal(t, []error{nil}, s.answer.errs())
			}
			_ = s.Close()
			s.wire.Close()
		})
	}
}
