package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A search that is interrupted, at its sync or at its list, ends with the reason, and leaves no goroutine.
func TestSearchIsInterrupted(t *testing.T) {
	interruptions := map[string]struct {
		cause  func(srv *fixture.Ensemble, s *session.Session, cancel context.CancelFunc)
		expect []error // any of these
	}{
		"closed":    {func(_ *fixture.Ensemble, s *session.Session, _ context.CancelFunc) { _ = s.Close() }, []error{zkutil.ErrClosed}},
		"cancelled": {func(_ *fixture.Ensemble, _ *session.Session, cancel context.CancelFunc) { cancel() }, []error{context.Canceled}},
		"expired": {
			func(srv *fixture.Ensemble, s *session.Session, _ context.CancelFunc) {
				srv.Expire(fixture.SessionID(s))
			},
			[]error{zk.ErrConnectionClosed, zk.ErrSessionExpired},
		},
		"disconnected": {func(srv *fixture.Ensemble, _ *session.Session, _ context.CancelFunc) { srv.Disconnect() }, []error{zk.ErrConnectionClosed}},
	}
	for name, c := range interruptions {
		for _, op := range []zktest.Op{zktest.OpSync, zktest.OpGetChildren2} {
			t.Run(fmt.Sprintf("%s at %v", name, op), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := fixture.NewEnsemble(t)
					s := fixture.Connect(t, srv.Config(6*time.Second))
					srv.Put("/m", nil)
					defer srv.Delay(op, time.Hour)()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					failure := make(chan error, 1)
					var endedAt time.Time
					go func() { // ends when the search is interrupted; joined below
						err := s.Search(ctx, "/m", "a uuid")
						endedAt = time.Now()
						failure <- err
					}()
					bubble.Pass(100 * time.Millisecond)
					require.Empty(t, failure)
					start := time.Now()
					c.cause(srv, s, cancel) // Close waits longer for zk.Conn than the search does
					err := <-failure
					require.True(t, slices.ContainsFunc(c.expect, func(target error) bool { return errors.Is(err, target) }), "%v", err)
					require.LessOrEqual(t, endedAt.Sub(start), 100*time.Millisecond)
				})
			})
		}
	}
}

// A list whose sync was refused is ignored, because the server may lag behind.
func TestSearchNeedsItsSync(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m", nil)
		srv.Once(zktest.OpSync, zktest.Fault{Refusal: zktest.RefuseNoAuth})
		err := s.Search(t.Context(), "/m", "a uuid")
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
}
