package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// dataAnswer is the answer to a request for a znode's data.
func dataAnswer(xid int32, data []byte) []byte {
	return proto.NewEncoder().Raw(answerFrame(xid, 9, proto.CodeOK)[4:]).Buffer(data).Stat(zk.Stat{Czxid: 3}).Frame()
}

// Answers to own requests, and events of watches that zk.Conn has not set, are taken out of the stream. zk.Conn gets
// everything else.
func TestAnswersAreTakenOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.ask("/1")
		s.next()
		go func() { _, _ = s.Write(requestFrame(5, proto.OpGetData, "/user", true)) }()
		s.next()
		s.ask("/2")
		s.next()
		s.deliver(dataAnswer(firstXid, []byte("one")), eventFrame(proto.EventDeleted, "/1"), dataFrame(5, 9))
		require.Equal(t, dataFrame(5, 9), <-s.read)
		require.Equal(t, []string{"/1"}, s.answer.paths())
		event := eventFrame(proto.EventDataChanged, "/user")
		s.deliver(eventFrame(proto.EventCreated, "/user"), event, event)
		require.Equal(t, event, <-s.read)
		synctest.Wait()
		require.Empty(t, s.read)
		require.Equal(t, []ownEvent{{proto.EventDeleted, "/1"}, {proto.EventCreated, "/user"}, {proto.EventDataChanged, "/user"}}, s.owner.events,
			"zk.Conn's watch is for one change")
		s.deliver(slices.Concat(dataAnswer(firstXid-1, []byte("two")), answerFrame(proto.XidPing, 9, proto.CodeOK)))
		require.Equal(t, answerFrame(proto.XidPing, 9, proto.CodeOK), <-s.read)
		require.Equal(t, []string{"/1", "/2"}, s.answer.paths())
		require.Equal(t, "two", string(s.answer.all()[1].Data))
		require.EqualValues(t, 3, s.answer.all()[1].Stat.Czxid)
		s.wire.Close()
	})
}

// A zk.Conn that sets watches of kinds which the wire does not know gets all events.
func TestEventsOfUnknownWatchesPass(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		go func() { _, _ = s.Write(requestFrame(5, proto.OpAddWatch, "/user", false)) }()
		s.next()
		event := eventFrame(proto.EventDeleted, "/user/child")
		s.deliver(event)
		require.Equal(t, event, <-s.read)
		s.wire.Close()
	})
}

// zk.Conn handles an event before a later answer is delivered, because the line reads on only after that.
func TestEventPrecedesLaterAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
		go s.deliver(handshakeFrame(7))
		_, err := readWhole(s.Line)
		require.NoError(t, err)
		go func() { _, _ = s.Write(requestFrame(5, proto.OpGetData, "/1", true)) }()
		s.next()
		go s.deliver(dataFrame(5, 9))
		_, err = readWhole(s.Line)
		require.NoError(t, err)
		s.ask("/1")
		s.next()
		event := eventFrame(proto.EventDeleted, "/1")
		go s.deliver(slices.Concat(event, dataAnswer(firstXid, nil), answerFrame(proto.XidPing, 9, proto.CodeOK)))
		got, err := readWhole(s.Line)
		require.NoError(t, err)
		require.Equal(t, event, got)
		synctest.Wait()
		require.Empty(t, s.answer.all(), "zk.Conn may not have acted on the event yet")
		_, err = readWhole(s.Line)
		require.NoError(t, err)
		require.Len(t, s.answer.all(), 1)
		s.wire.Close()
	})
}

// A body arrives in pieces, is larger than the buffer, or as large as allowed.
func TestBodiesOfAnySize(t *testing.T) {
	for _, test := range []struct{ size, piece int }{{10, 1}, {5 << 10, 7}, {16 << 10, 4 << 10}, {100 << 10, 1000}, {MaxFrame - proto.HeaderSize - 68, 1 << 20}} {
		t.Run(fmt.Sprintf("%d by %d", test.size, test.piece), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				s.ask("/1", "/2")
				s.next()
				s.next()
				data := bytes.Repeat([]byte("x"), test.size)
				frames := slices.Concat(dataAnswer(firstXid, data), dataAnswer(firstXid-1, []byte("y")), answerFrame(proto.XidPing, 1, proto.CodeOK))
				for piece := range slices.Chunk(frames, test.piece) {
					s.deliver(piece)
				}
				<-s.read
				got := s.answer.all()
				require.Len(t, got, 2)
				require.NoError(t, got[0].Err)
				require.True(t, bytes.Equal(data, got[0].Data))
				require.Equal(t, "y", string(got[1].Data))
				s.wire.Close()
			})
		})
	}
}

// A malformed answer ends the line. Its request gets an error that is no refusal, the others zk.ErrConnectionClosed,
// in their order.
func TestMalformedAnswersEndTheLine(t *testing.T) {
	tooLong := answerFrame(firstXid, 1, proto.CodeOK)
	copy(tooLong, proto.NewEncoder().Int32(MaxFrame+1).Body())
	cut := func(n int) []byte {
		frame := dataAnswer(firstXid, []byte("data"))
		return proto.NewEncoder().Raw(frame[4 : len(frame)-n]).Frame()
	}
	for name, test := range map[string]struct {
		frame []byte
		isOwn bool // it answers a request
	}{
		"longer than is allowed":   {tooLong, true},
		"no stat":                  {cut(68), true},
		"half a stat":              {cut(1), true},
		"an xid that nobody used":  {dataAnswer(-5000, nil), false},
		"the answer to the second": {dataAnswer(firstXid-1, nil), false},
		"no header":                {proto.NewEncoder().Int32(firstXid).Frame(), false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				s.ask("/1", "/2")
				s.next()
				s.next()
				s.deliver(test.frame)
				require.Error(t, <-s.ended)
				require.Equal(t, []string{"/1", "/2"}, s.answer.paths())
				got := s.answer.errs()
				if !test.isOwn {
					require.ErrorIs(t, got[0], zk.ErrConnectionClosed)
				}
				require.True(t, errors.Is(got[0], errMalformed) || errors.Is(got[0], zk.ErrConnectionClosed))
				require.ErrorIs(t, got[1], zk.ErrConnectionClosed)
				select {
				case <-s.closeDone:
				default:
					require.Fail(t, "the line is open")
				}
				s.wire.Close()
			})
		})
	}
}

// A server that does not know an operation says so at once, before the answers to earlier requests
// (UnimplementedRequestProcessor), and ends the connection.
func TestUnknownOperationIsAnsweredOutOfOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.request(proto.OpMulti, "/beat")
		s.request(proto.OpCreate2, "/1")
		s.next()
		xid, _, _ := s.next()
		s.deliver(answerFrame(xid, -1, proto.CodeUnimplemented))
		_ = s.server.Close()
		require.Error(t, <-s.ended)
		_ = s.Close()
		require.Equal(t, []string{"/1", "/beat"}, s.answer.paths())
		got := s.answer.errs()
		require.EqualError(t, got[0], "unknown error: -6")
		require.ErrorIs(t, got[1], zk.ErrConnectionClosed)
	})
}

// Answers to own requests arrive all the time, but none for zk.Conn. Its deadline does not end the line.
func TestOwnAnswersExtendTheReadDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const timeout = 4 * time.Second
		s := openScript(t)
		go func() { // takes pings and does not answer
			for {
				if _, err := readWhole(s.server); err != nil {
					return
				}
			}
		}()
		s.ask(slices.Repeat([]string{"/a"}, 10)...)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(timeout)))
		for i := range int32(10) {
			pass(timeout - time.Millisecond)
			s.deliver(dataFrame(firstXid-i, 1))
			synctest.Wait()
		}
		require.Empty(t, s.ended)
		require.Len(t, s.answer.all(), 10)
		ended := time.Now()
		require.Error(t, <-s.ended)
		require.Equal(t, timeout, time.Since(ended), "of silence")
		s.wire.Close()
	})
}

// The bytes of a long answer extend the deadline as well.
func TestBytesOfAnOwnAnswerExtendTheReadDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const timeout = 4 * time.Second
		s := openScript(t)
		s.ask("/1")
		s.next()
		go func() {
			for {
				if _, err := readWhole(s.server); err != nil {
					return
				}
			}
		}()
		require.NoError(t, s.SetReadDeadline(time.Now().Add(timeout)))
		for piece := range slices.Chunk(dataAnswer(firstXid, make([]byte, 64<<10)), 8<<10) {
			pass(timeout - time.Millisecond)
			s.deliver(piece)
		}
		synctest.Wait()
		require.Len(t, s.answer.all(), 1)
		require.NoError(t, s.answer.errs()[0])
		s.wire.Close()
	})
}

// A server that reports an expired session usually closes the connection, too. Otherwise the line does, and the next
// handshake finds out.
func TestExpiredSessionEndsTheLine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.ask("/1", "/2")
		s.next()
		s.next()
		s.deliver(answerFrame(firstXid, 0, proto.CodeSessionExpired))
		require.ErrorIs(t, <-s.ended, errExpired)
		require.Equal(t, []error{zk.ErrSessionExpired, zk.ErrConnectionClosed}, s.answer.errs())
		require.ErrorIs(t, s.Failure(), errExpired)
		s.wire.Close()
	})
}
