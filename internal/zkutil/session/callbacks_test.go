package session_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func TestPanicInACallbackIsContainedAndLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var log syncBuffer
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		order := fixture.Connect(t, cfg).Callbacks()
		ran := make(chan struct{})
		order.Post(func() { panic("out of order") })
		order.Post(func() { close(ran) })
		<-ran
		synctest.Wait()
		require.Contains(t, log.String(), "panic in a callback")
		require.Contains(t, log.String(), "out of order")
	})
}

// Session ids never reach a log, because a session's password follows from them.
func TestNoSessionIDIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var log syncBuffer
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.Disconnect()
		bubble.Pass(time.Second)
		srv.Expire(id)
		bubble.Pass(5 * time.Second)
		require.NoError(t, s.Close())
		text := log.String()
		require.Contains(t, text, "suspended")
		require.Contains(t, text, "lease lost")
		for _, form := range []string{"%d", "%x"} {
			require.NotContains(t, text, fmt.Sprintf(form, id))
		}
	})
}

// syncBuffer may be written from any goroutine.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A panic in a callback that Close does not wait for any more is logged all the same.
func TestPanicAfterCloseIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var log syncBuffer
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := session.Connect(t.Context(), cfg)
		require.NoError(t, err)
		hang := make(chan struct{})
		s.Callbacks().Post(func() { <-hang; panic("too late") })
		require.ErrorContains(t, s.Close(), "a callback is still running")
		close(hang)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), "too late")
	})
}
