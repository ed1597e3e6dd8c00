package zkutil

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// reconnected is a line on which a handshake and one answer have come in, while zk.Conn
// has a watch to set again and has written requests. The answer is sent to delivered
// once it may pass.
func reconnected(t *testing.T, watches int, requests ...[]byte) (l *line, delivered <-chan error) {
	t.Helper()
	l, _ = lineOver(t, framed(greeting(7), jute(5, int64(99), codeOK)))
	if watches > 0 {
		l.wire.watches[watchKey{"/a", watchData}] = struct{}{}
	}
	l.wire.patience = func() time.Duration { return time.Second }
	_, err := io.ReadFull(l, make([]byte, len(framed(greeting(7)))))
	require.NoError(t, err)
	for _, request := range requests {
		_, err := l.Write(request)
		require.NoError(t, err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(l, make([]byte, 4+16))
		result <- err
	}()
	return l, result
}

// zk.Conn builds setWatches out of the last zxid that it has seen, so it may see none
// of this connection before it has done so.
func TestAnswersWaitForSetWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, delivered := reconnected(t, 1)
		pass(900 * time.Millisecond)
		require.Empty(t, delivered)
		_, err := l.Write(framed(jute(6, int32(opGetData), "/b", false)))
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, delivered, "another request does not count")
		_, err = l.Write(framed(jute(7, int32(opSetWatches), int64(98), []string{"/a"}, []string{}, []string{})))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, <-delivered)
		l.wire.shut()
	})
}

// But for the one to a credential, which zk.Conn waits for before it sends anything: a
// server that is no ZooKeeper may put a zxid there.
func TestAnswerToACredentialPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l, delivered := reconnected(t, 1, framed(jute(5, int32(opSetAuth), 0, "digest", "a:a")))
		require.NoError(t, <-delivered)
		require.Equal(t, start, time.Now())
		l.wire.shut()
	})
}

// The request of a line that died early comes first, and is not the one.
func TestAnswersWaitForTheSetWatchesOfTheirLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, delivered := reconnected(t, 1)
		l.wire.mu.Lock()
		l.wire.unsent++
		l.wire.mu.Unlock()
		setWatches := framed(jute(7, int32(opSetWatches), int64(98), []string{"/a"}, []string{}, []string{}))
		_, err := l.Write(setWatches)
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, delivered)
		_, err = l.Write(setWatches)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, <-delivered)
		l.wire.shut()
	})
}

// No answer is held for ever, and none passes a line that was closed.
func TestAnswersWaitInBounds(t *testing.T) {
	for watches, limit := range []time.Duration{settling, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			l, delivered := reconnected(t, watches)
			require.NoError(t, <-delivered)
			require.Equal(t, limit, time.Since(start))
			l.wire.shut()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l, delivered := reconnected(t, 1)
		synctest.Wait()
		l.wire.shut()
		require.ErrorIs(t, <-delivered, net.ErrClosed)
	})
}

// With so many watches that zk.Conn takes its time, and several requests, to set them
// again: none of the changes in the gap is lost.
func TestManyChangesInTheGapAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		long := strings.Repeat("x", 1000)
		var watches []*Watch
		var paths []string
		for i := range 600 {
			path := "/" + long + string(rune('一'+i))
			f.put(path, "old")
			w, err := s.watch(t.Context(), path)
			require.NoError(t, err)
			watches, paths = append(watches, w), append(paths, path)
		}
		f.set(refusing, serverA)
		f.drop()
		synctest.Wait()
		for range 20 {
			go func() { _ = read(t.Context(), s) }()
		}
		synctest.Wait()
		for _, path := range paths {
			f.put(path, "new")
		}
		f.set(healthy, serverA)
		pass(2 * time.Second)
		require.Greater(t, len(f.requests(opSetWatches)), 1)
		for _, w := range watches {
			require.True(t, w.hasFired(), "lost event")
			require.Equal(t, zk.EventNodeDataChanged, w.event)
		}
	})
}

// A frame larger than what the wire buffers passes unchanged.
func TestLargeFramesPass(t *testing.T) {
	in := framed(greeting(7), jute(1, int64(0), codeOK, bytes.Repeat([]byte("x"), 3<<20)),
		jute(xidEvent, int64(-1), codeOK, eventDeleted, 3, "/"+strings.Repeat("y", 100<<10)))
	l, _ := lineOver(t, in)
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.True(t, bytes.Equal(in, got))
}
