package session_test

import (
	"context"
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

// maxQueued is how many calls wait for one that does not return.
const maxQueued = 1024

// hangingHandler is a handler whose calls wait for hang, unless that is nil.
type hangingHandler struct {
	hang <-chan struct{}

	mu      sync.Mutex // protects what is below
	level   slog.Level
	asked   map[slog.Level]int
	records []slog.Record
}

func (h *hangingHandler) Enabled(_ context.Context, level slog.Level) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked == nil {
		h.asked = map[slog.Level]int{}
	}
	h.asked[level]++
	return level >= h.level
}

func (h *hangingHandler) Handle(_ context.Context, record slog.Record) error {
	if h.hang != nil {
		<-h.hang
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, record)
	return nil
}

func (h *hangingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *hangingHandler) WithGroup(string) slog.Handler      { return h }

func (h *hangingHandler) setLevel(level slog.Level) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.level = level
}

// take returns the records since the last take once nothing happens any more.
func (h *hangingHandler) take() []slog.Record {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	records := h.records
	h.records = nil
	return records
}

// dropped returns the number of dropped records that a record tells of.
func dropped(record slog.Record) (n int64) {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "records_dropped" {
			n = a.Value.Int64()
		}
		return true
	})
	return n
}

// While a handler hangs, 1,024 records wait besides the one that it has. The next one that it gets says how many were
// dropped, and each has the time of its event.
func TestHandlerThatHangsBoundsTheRecords(t *testing.T) {
	for _, beyond := range []int{0, 1, 50_000} {
		t.Run(fmt.Sprint(beyond), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				hang := make(chan struct{})
				handler := &hangingHandler{hang: hang, level: slog.LevelWarn}
				cfg := srv.Config(6 * time.Second)
				cfg.Logger = slog.New(handler)
				s := fixture.Connect(t, cfg)
				begin := time.Now()
				s.Log(slog.LevelWarn, "first")
				synctest.Wait() // the handler has it
				for i := range maxQueued + beyond {
					s.Log(slog.LevelWarn, "event", "n", i)
				}
				fixture.Pass(time.Second)
				close(hang)
				records := handler.take()
				require.Len(t, records, 1+maxQueued)
				require.Zero(t, dropped(records[0]))
				require.EqualValues(t, beyond, dropped(records[1]))
				require.Zero(t, dropped(records[2]))
				for _, record := range records {
					require.Equal(t, begin, record.Time)
					require.NotZero(t, record.PC)
				}
				s.Log(slog.LevelWarn, "later")
				last := handler.take()
				require.Len(t, last, 1)
				require.Zero(t, dropped(last[0]))
			})
		})
	}
}

// A level that the logger does not want costs one question a second. A program may change the level at any time.
func TestDisabledLevelIsAskedAboutOnceASecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		handler := &hangingHandler{level: slog.LevelInfo}
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(handler)
		s := fixture.Connect(t, cfg)
		fixture.Pass(2 * time.Second)
		handler.take()
		asked := func() int {
			synctest.Wait()
			handler.mu.Lock()
			defer handler.mu.Unlock()
			return handler.asked[slog.LevelDebug]
		}
		before := asked()
		for range 100 {
			s.Log(slog.LevelDebug, "detail")
			synctest.Wait()
		}
		require.Equal(t, before+1, asked())
		s.Log(slog.LevelInfo, "event")
		require.Len(t, handler.take(), 1, "another level")
		handler.setLevel(slog.LevelDebug)
		fixture.Pass(time.Second)
		s.Log(slog.LevelDebug, "detail")
		s.Log(slog.LevelDebug, "detail")
		require.Len(t, handler.take(), 2)
	})
}

// A panic in one function of the user is written by the background, too: it does not wait for a handler that hangs.
func TestPanicDoesNotWaitForTheHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		hang := make(chan struct{})
		handler := &hangingHandler{hang: hang, level: slog.LevelError}
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(handler)
		order := fixture.Connect(t, cfg).Callbacks()
		ran := false
		order.Post(func() { panic(errors.New("boom")) })
		order.Post(func() { ran = true })
		synctest.Wait()
		require.True(t, ran)
		close(hang)
		require.Len(t, handler.take(), 1)
	})
}

// Calls of a trace that does not return wait up to a bound, and those beyond are counted in the log.
func TestTraceThatHangsBoundsItsCalls(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		hang := make(chan struct{})
		handler := &hangingHandler{level: slog.LevelWarn}
		var changes []session.StateChange
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(handler)
		cfg.Traces = []*session.Trace{{StateChange: func(e session.StateChange) {
			<-hang
			changes = append(changes, e)
		}}}
		s := fixture.Connect(t, cfg)
		synctest.Wait() // the trace has the first change
		suspended := 0
		for range maxQueued/2 + 10 { // two changes each
			srv.Disconnect()
			fixture.Pass(100 * time.Millisecond)
			suspended++
		}
		require.Equal(t, session.Connected, s.State())
		left := 0
		for _, record := range handler.take() {
			if record.Message == "a function does not return: calls are left out" {
				left++
			}
		}
		require.Equal(t, 1, left, "at once, and then once a minute at most")
		close(hang)
		synctest.Wait()
		require.Len(t, changes, 1+maxQueued)
		srv.Disconnect()
		fixture.Pass(100 * time.Millisecond)
		synctest.Wait()
		require.Len(t, changes, 1+maxQueued+2)
	})
}
