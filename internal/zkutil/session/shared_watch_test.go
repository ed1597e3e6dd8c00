package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// withSession runs a test with a session.
func withSession(t *testing.T, test func(t *testing.T, srv *fixture.Ensemble, s *session.Session)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		test(t, srv, fixture.Connect(t, srv.Config(30*time.Second)))
	})
}

// Two callers watch a znode together. The first registered the watch, but its request follows that of the second, and the znode
// changes in between. Without care, the second caller would never learn of that change.
func TestSharedWatchIsAsOldAsTheData(t *testing.T) {
	withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/limit", []byte("old"))
		send, err := s.HoldRead(t.Context(), "/limit", false)
		require.NoError(t, err)
		type outcome struct {
			node  session.Node
			watch *session.Watch
			err   error
		}
		second := make(chan outcome, 1)
		go func() {
			n, w, err := s.ReadAndWatch(t.Context(), "/limit")
			second <- outcome{n, w, err}
		}()
		bubble.Pass(time.Second) // the second read was answered
		srv.Put("/limit", []byte("new"))
		send()
		bubble.Pass(time.Second)
		got := <-second
		require.NoError(t, got.err)
		require.True(t, string(got.node.Data) == "new" || got.watch.HasFired(), "%q, and the watch stands", got.node.Data)
		srv.Put("/limit", []byte("newer"))
		bubble.Pass(time.Second)
		require.True(t, got.watch.HasFired())
	})
}

func TestSharedWatchIsAsOldAsTheList(t *testing.T) {
	withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/m/a", nil)
		send, err := s.HoldRead(t.Context(), "/m", true)
		require.NoError(t, err)
		var watch *session.Watch
		second := make(chan []string, 1)
		go func() {
			children, w, err := session.ListAndWatch(t.Context(), s, "/m", slices.Clone[[]string])
			watch = w
			second <- append(children, errorTexts(err)...)
		}()
		bubble.Pass(time.Second)
		srv.Put("/m/b", nil)
		send()
		bubble.Pass(time.Second)
		children := <-second
		slices.Sort(children)
		require.True(t, slices.Equal(children, []string{"a", "b"}) || watch.HasFired(), "%q, and the watch stands", children)
	})
}

// A read that was executed before the call, and found no znode, does not replace the caller's own read, which finds it.
func TestSharedWatchThatFoundNothing(t *testing.T) {
	withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Once(zktest.OpGetData, zktest.Fault{Delay: time.Second})
		errs := make(chan error, 1)
		go func() {
			_, _, err := s.ReadAndWatch(t.Context(), "/limit")
			errs <- err
		}()
		bubble.Pass(100 * time.Millisecond)
		srv.Put("/limit", []byte("there"))
		n, watch, err := s.ReadAndWatch(t.Context(), "/limit")
		require.ErrorIs(t, <-errs, zk.ErrNoNode)
		require.NoError(t, err)
		require.Equal(t, "there", string(n.Data))
		srv.Put("/limit", []byte("new"))
		bubble.Pass(time.Second)
		require.True(t, watch.HasFired())
	})
}

func errorTexts(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}
