package zkutil

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// greeted is a line on which a handshake and one answer have come in, while zk.Conn has
// watches to set again. It has read the handshake.
func greeted(t *testing.T, watches int) *line {
	t.Helper()
	l, _ := lineOver(t, slices.Concat(greeting(7), answer(5, 99, proto.CodeOK)))
	if watches > 0 {
		l.wire.watches[watchKey{"/a", watchData}] = struct{}{}
	}
	l.wire.period = func() time.Duration { return time.Second }
	_, err := io.ReadFull(l, make([]byte, len(greeting(7))))
	require.NoError(t, err)
	return l
}

// reconnected is such a line. What reading the answer gave is sent to delivered once it
// may pass.
func reconnected(t *testing.T, watches int) (l *line, delivered <-chan error) {
	t.Helper()
	l = greeted(t, watches)
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

// setWatches2 is the form of the same request that has persistent watches, too.
var setWatches2 = proto.NewEncoder().Int32(7).Int32(105).Int64(98).
	Strings([]string{"/a"}).Strings(nil).Strings(nil).Strings(nil).Strings(nil).Frame()

// zk.Conn builds setWatches out of the last zxid that it has seen, so it may see none
// of this connection before it has done so.
func TestAnswersWaitForSetWatches(t *testing.T) {
	for _, request := range [][]byte{setWatches, setWatches2} {
		synctest.Test(t, func(t *testing.T) {
			l, delivered := reconnected(t, 1)
			pass(900 * time.Millisecond)
			require.Empty(t, delivered)
			_, err := l.Write(ask(6, proto.OpGetData, "/b", false))
			require.NoError(t, err)
			synctest.Wait()
			require.Empty(t, delivered, "another request does not count")
			_, err = l.Write(request)
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, delivered, 1)
			require.NoError(t, <-delivered)
			require.True(t, l.setsWatches(7))
			l.wire.shut()
		})
	}
}

// But for the one to a credential, which zk.Conn waits for before it sends anything: a
// server that is no ZooKeeper may put a zxid there. And for all that come once the
// session's end was asked for: zk.Conn sends nothing after that.
func TestSomeAnswersPass(t *testing.T) {
	for _, request := range [][]byte{
		proto.NewEncoder().Int32(5).Int32(proto.OpAuth).Int32(0).String("digest").String("a:a").Frame(),
		proto.NewEncoder().Int32(6).Int32(proto.OpCloseSession).Frame(),
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			l := greeted(t, 1)
			_, err := l.Write(request)
			require.NoError(t, err)
			got, err := io.ReadAll(l)
			require.NoError(t, err)
			require.Equal(t, start, time.Now())
			require.Equal(t, answer(5, 0, proto.CodeOK), got, "without the zxid")
			l.wire.shut()
		})
	}
}

// An answer that is being held passes too.
func TestCloseLetsAnswersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, delivered := reconnected(t, 1)
		pass(900 * time.Millisecond)
		require.Empty(t, delivered)
		_, err := l.Write(proto.NewEncoder().Int32(6).Int32(proto.OpCloseSession).Frame())
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, <-delivered)
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
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		long := strings.Repeat("x", 1000)
		var watches []*Watch
		var paths []string
		for i := range 600 {
			path := "/" + long + string(rune('一'+i))
			srv.Put(path, []byte("old"))
			w, err := s.watch(t.Context(), path)
			require.NoError(t, err)
			watches, paths = append(watches, w), append(paths, path)
		}
		srv.Stop(srv.a)
		synctest.Wait()
		for range 20 {
			go func() { _ = read(t.Context(), s) }()
		}
		synctest.Wait()
		for _, path := range paths {
			srv.Put(path, []byte("new"))
		}
		srv.Restart(srv.a)
		pass(2 * time.Second)
		require.Greater(t, len(srv.log.Requests(zktest.OpSetWatches)), 1)
		for _, w := range watches {
			require.True(t, w.hasFired(), "lost event")
			require.Equal(t, zk.EventNodeDataChanged, w.event)
		}
	})
}

// A frame larger than what the wire buffers passes unchanged.
func TestLargeFramesPass(t *testing.T) {
	large := proto.NewEncoder().Int32(1).Int64(0).Int32(proto.CodeOK).Buffer(bytes.Repeat([]byte("x"), 3<<20)).Frame()
	in := slices.Concat(greeting(7), large, eventOf(proto.EventDeleted, "/"+strings.Repeat("y", 100<<10)))
	l, _ := lineOver(t, in)
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.True(t, bytes.Equal(in, got))
}
