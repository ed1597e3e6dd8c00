package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func TestCallbacksRunInOrderOneAtATime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		order := s.Callbacks()
		var ran []int // plain: one at a time
		running := false
		for i := range 100 {
			order.Post(func() {
				if running {
					t.Error("two at once")
				}
				running = true
				fixture.Pause(time.Millisecond)
				ran = append(ran, i)
				running = false
				if i == 50 {
					order.Post(func() { ran = append(ran, 100) }) // from inside one
				}
			})
		}
		require.NoError(t, s.Close(), "which joins them")
		require.Len(t, ran, 101)
		for i, n := range ran {
			require.Equal(t, i, n)
		}
	})
}

// A hanging callback of one recipe does not hold up another's.
func TestCallbacksOfDifferentRecipesAreIndependent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		hang, ran := make(chan struct{}), make(chan struct{})
		s.Callbacks().Post(func() { <-hang })
		s.Callbacks().Post(func() { close(ran) })
		<-ran
		close(hang)
	})
}

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

// Session ids never reach a log: a session's password follows from them.
func TestNoSessionIDIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var log syncBuffer
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		srv.Disconnect()
		fixture.Pass(time.Second)
		srv.Expire(id)
		fixture.Pass(5 * time.Second)
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

// Without a logger the program's default is used, as it is when something is logged.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = nil
		s := fixture.Connect(t, cfg)
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		s.Log(slog.LevelError, "after Connect", "err", errors.New("cause"))
		synctest.Wait()
		require.Contains(t, log.String(), `msg="after Connect" err=cause`)
	})
}
