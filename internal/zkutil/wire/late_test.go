package wire

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// lateOwner records late proofs.
type lateOwner struct {
	*testOwner

	mu     sync.Mutex // protects what is below
	proofs []SentWrite
}

func (o *lateOwner) OnLateProof(w SentWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.proofs = append(o.proofs, w)
}

func (o *lateOwner) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.proofs)
}

// The late answer to an own write on an abandoned line proves the session. Its request was given up before. A
// refusal, and the answer to a read, prove nothing.
func TestLateAnswersToOwnWrites(t *testing.T) {
	for name, test := range map[string]struct {
		op     int32
		answer func(xid int32) []byte
		proofs int
	}{
		"a delete":         {proto.OpDelete, func(xid int32) []byte { return answerFrame(xid, 9, proto.CodeOK) }, 1},
		"a refused delete": {proto.OpDelete, func(xid int32) []byte { return answerFrame(xid, 9, proto.CodeNoNode) }, 0},
		"a create2": {proto.OpCreate2, func(xid int32) []byte {
			return proto.NewEncoder().Raw(answerFrame(xid, 9, 0)[4:]).String("/1").Raw(make([]byte, 68)).Frame()
		}, 1},
		"a sync": {proto.OpSync, func(xid int32) []byte { return proto.NewEncoder().Raw(answerFrame(xid, 9, 0)[4:]).String("/1").Frame() }, 0},
		"a Multi": {proto.OpMulti, func(xid int32) []byte {
			return proto.NewEncoder().Raw(answerFrame(xid, 9, 0)[4:]).Int32(proto.OpCheck).Bool(false).Int32(0).Int32(-1).Bool(true).Int32(-1).Frame()
		}, 1},
		"a refused Multi": {proto.OpMulti, func(xid int32) []byte {
			return proto.NewEncoder().Raw(answerFrame(xid, 9, 0)[4:]).Int32(-1).Bool(false).Int32(-101).Int32(-101).Int32(-1).Bool(true).Int32(-1).Frame()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				late := &lateOwner{testOwner: s.owner}
				s.wire.owner = late
				s.request(test.op, "/1")
				xid, _, _ := s.next()
				s.request(proto.OpDelete, "/2") // so that a proof is in flight
				s.next()
				s.Abandon()
				require.ErrorIs(t, <-s.ended, errAbandoned)
				s.deliver(test.answer(xid)) // before zk.Conn closes the line
				synctest.Wait()
				_ = s.Close()
				require.Equal(t, []string{"/1", "/2"}, s.answer.paths())
				require.True(t, isUnanswered(s.answer.errs()[0]))
				require.True(t, isUnanswered(s.answer.errs()[1]))
				require.Equal(t, test.proofs, late.count())
				s.deliver(answerFrame(xid-1, 10, proto.CodeOK)) // afterwards
				synctest.Wait()
				require.Equal(t, test.proofs+1, late.count())
				require.Len(t, s.answer.all(), 2)
				s.wire.Close()
			})
		})
	}
}

// The line is abandoned in the middle of an answer to an own request, and zk.Conn's reader stops. The rest is still
// read.
func TestAbandonInTheMiddleOfAnAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		late := &lateOwner{testOwner: s.owner}
		s.wire.owner = late
		s.ask("/1")
		xid, _, _ := s.next()
		s.request(proto.OpDelete, "/2")
		s.next()
		frame := dataAnswer(xid, make([]byte, 40<<10))
		s.deliver(frame[:30<<10])
		synctest.Wait()
		s.Abandon()
		require.ErrorIs(t, <-s.ended, errAbandoned)
		_ = s.Close()
		s.deliver(frame[30<<10:], answerFrame(xid-1, 10, proto.CodeOK))
		synctest.Wait()
		require.Equal(t, 1, late.count())
		for _, err := range s.answer.errs() {
			require.True(t, isUnanswered(err))
		}
		require.Len(t, s.answer.all(), 2)
		s.wire.Close()
	})
}

// Own requests are part of the record of gaps, so an abandoned line is read for T at most.
func TestAbandonedLineWithoutAnAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.request(proto.OpDelete, "/1")
		s.next()
		start := time.Now()
		s.Abandon()
		require.Error(t, <-s.ended)
		_ = s.Close()
		_, err := s.server.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, 4*time.Second, time.Since(start))
		s.wire.Close()
	})
}

// An abandoned line is dropped as soon as a later write proves the session: its socket is closed in that instant, not after T.
// A line whose write was sent after that proof is still read.
func TestAbandonedLineIsDroppedByALaterProof(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.request(proto.OpDelete, "/1")
		s.next()
		sentAt := time.Now()
		s.Abandon()
		require.Error(t, <-s.ended)
		_ = s.Close()
		closed := make(chan time.Time, 1)
		go func() { // ends with the socket; joined below
			_, _ = s.server.Read(make([]byte, 1))
			closed <- time.Now()
		}()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		s.wire.DropAbandoned(sentAt.Add(-time.Nanosecond))
		synctest.Wait()
		require.Empty(t, closed, "its write may still prove more")
		s.wire.DropAbandoned(sentAt)
		require.Equal(t, sentAt.Add(time.Second), <-closed)
		s.wire.Close()
	})
}
