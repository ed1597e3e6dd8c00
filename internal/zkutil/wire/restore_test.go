package wire

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// openLine returns a line after the handshake, while zk.Conn has to set some watches again. One answer arrived, which
// zk.Conn did not read yet.
func openLine(t *testing.T, watches int) *Line {
	t.Helper()
	l, o := newLineReading(t, slices.Concat(handshakeFrame(7), answerFrame(5, 99, proto.CodeOK)))
	if watches > 0 {
		l.wire.watches[WatchKey{"/a", core.WatchData}] = struct{}{}
	}
	o.period = time.Second
	_, err := io.ReadFull(l, make([]byte, len(handshakeFrame(7))))
	require.NoError(t, err)
	return l
}

// readAnswer returns such a line, and reads the answer in a goroutine. The result is sent to delivered
// when the answer may pass.
func readAnswer(t *testing.T, watches int) (l *Line, delivered <-chan error) {
	t.Helper()
	l = openLine(t, watches)
	result := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(l, make([]byte, 4+16))
		result <- err
	}()
	return l, result
}

// setWatches is the request that zk.Conn writes after a reconnect.
var setWatches = proto.NewEncoder().Int32(7).Int32(proto.OpSetWatches).Int64(98).
	Strings([]string{"/a"}).Strings(nil).Strings(nil).Frame()

// setWatches2 is the form of the same request that has persistent watches too.
var setWatches2 = proto.NewEncoder().Int32(7).Int32(105).Int64(98).
	Strings([]string{"/a"}).Strings(nil).Strings(nil).Strings(nil).Strings(nil).Frame()

// zk.Conn puts the last zxid that it saw into setWatches. Before that it must see no zxid of the new connection.
func TestAnswersWaitForSetWatches(t *testing.T) {
	for _, request := range [][]byte{setWatches, setWatches2} {
		testkit.Bubble(t, func(t *testing.T) {
			l, delivered := readAnswer(t, 1)
			pass(900 * time.Millisecond)
			require.Empty(t, delivered)
			_, err := l.Write(requestFrame(6, proto.OpGetData, "/b", false))
			require.NoError(t, err)
			synctest.Wait()
			require.Empty(t, delivered, "another request does not count")
			_, err = l.Write(request)
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, delivered, 1)
			require.NoError(t, <-delivered)
			require.True(t, l.isSetWatches(7))
			l.wire.Close()
		})
	}
}

// The answer to a credential passes without its zxid, because zk.Conn sends nothing before it. So do all answers
// after the session's end was requested, because zk.Conn sends nothing after that.
func TestAnswersPassThatMustNotWait(t *testing.T) {
	for _, request := range [][]byte{
		proto.NewEncoder().Int32(5).Int32(proto.OpAuth).Int32(0).String("digest").String("a:a").Frame(),
		proto.NewEncoder().Int32(6).Int32(proto.OpCloseSession).Frame(),
	} {
		testkit.Bubble(t, func(t *testing.T) {
			start := time.Now()
			l := openLine(t, 1)
			_, err := l.Write(request)
			require.NoError(t, err)
			got, err := io.ReadAll(l)
			require.NoError(t, err)
			require.Equal(t, start, time.Now())
			require.Equal(t, answerFrame(5, 0, proto.CodeOK), got, "without the zxid")
			l.wire.Close()
		})
	}
}

// An answer that is held back passes when the session's end is requested.
func TestCloseReleasesAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, delivered := readAnswer(t, 1)
		pass(900 * time.Millisecond)
		require.Empty(t, delivered)
		_, err := l.Write(proto.NewEncoder().Int32(6).Int32(proto.OpCloseSession).Frame())
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, <-delivered)
		l.wire.Close()
	})
}

// The owner learns of the request that closes the session before its first byte is sent.
func TestOwnerIsNotifiedBeforeTheSessionIsClosed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		require.Zero(t, s.owner.closes.Load())
		go func() { _, _ = s.Write(proto.NewEncoder().Int32(6).Int32(proto.OpCloseSession).Frame()) }()
		synctest.Wait() // the server did not read yet
		require.EqualValues(t, 1, s.owner.closes.Load())
		s.wire.Close()
	})
}

// The setWatches of a line that ended early is written first. It does not release the answers.
func TestAnswersWaitForTheSetWatchesOfTheirLine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, delivered := readAnswer(t, 1)
		l.wire.mu.Lock()
		l.wire.queuedSetWatches++
		l.wire.mu.Unlock()
		_, err := l.Write(setWatches)
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, delivered)
		_, err = l.Write(setWatches)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, <-delivered)
		l.wire.Close()
	})
}

// The time for which an answer is held back is bounded. No answer passes on a line that was closed.
func TestAnswersWaitForALimitedTime(t *testing.T) {
	for watches, limit := range []time.Duration{settlingTime, time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			start := time.Now()
			l, delivered := readAnswer(t, watches)
			require.NoError(t, <-delivered)
			require.Equal(t, limit, time.Since(start))
			l.wire.Close()
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		l, delivered := readAnswer(t, 1)
		synctest.Wait()
		l.wire.Close()
		require.ErrorIs(t, <-delivered, net.ErrClosed)
	})
}

// A frame that is larger than the buffer passes unchanged.
func TestLargeFramesPass(t *testing.T) {
	large := proto.NewEncoder().Int32(1).Int64(0).Int32(proto.CodeOK).Buffer(bytes.Repeat([]byte("x"), 3<<20)).Frame()
	in := slices.Concat(handshakeFrame(7), large, eventFrame(proto.EventDeleted, "/"+strings.Repeat("y", 100<<10)))
	l, _ := newLineReading(t, in)
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.True(t, bytes.Equal(in, got))
}

// The session's end was requested before the refusal arrived. The line stays open for its answer.
func TestRefusedWatchesDoNotEndALineThatCloses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, o := newLineReading(t, slices.Concat(handshakeFrame(7), answerFrame(7, 99, proto.CodeOperationTimeout), answerFrame(8, 100, proto.CodeOK)))
		l.wire.watches[WatchKey{"/a", core.WatchData}] = struct{}{}
		o.patience = time.Second
		_, err := io.ReadFull(l, make([]byte, len(handshakeFrame(7))))
		require.NoError(t, err)
		_, err = l.Write(setWatches)
		require.NoError(t, err)
		_, err = l.Write(proto.NewEncoder().Int32(8).Int32(proto.OpCloseSession).Frame())
		require.NoError(t, err)
		_, err = io.ReadFull(l, make([]byte, len(answerFrame(7, 99, 0))))
		require.NoError(t, err)
		pass(time.Minute)
		_, err = io.ReadFull(l, make([]byte, len(answerFrame(8, 100, 0))))
		require.NoError(t, err)
		l.wire.Close()
	})
}

// zk.Conn continues without the watches that the server refused to set again. So the line ends after one period, in
// which the server can serve everything else.
func TestRefusedWatchesEndTheLine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.wire.watches[WatchKey{"/a", core.WatchData}] = struct{}{}
		next := s.reconnect()
		go func() { _, _ = next.Write(setWatches) }()
		_, op, _ := next.next()
		require.Equal(t, int32(proto.OpSetWatches), op)
		next.deliver(answerFrame(7, 99, proto.CodeOperationTimeout))
		pass(time.Second - 1)
		synctest.Wait()
		require.Empty(t, next.ended)
		pass(1)
		synctest.Wait()
		require.Len(t, next.ended, 1)
		require.ErrorIs(t, next.Failure(), errWatchesRefused)
		s.wire.Close()
	})
}
