package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
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

// take returns the records since the last take once nothing happens any more.
func (h *hangingHandler) take() []slog.Record {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	records := h.records
	h.records = nil
	return records
}

// Calls of a trace that does not return wait up to a bound, and those beyond are counted in the log.
func TestTraceThatHangsBoundsItsCalls(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		hang := make(chan struct{})
		handler := &hangingHandler{level: slog.LevelWarn}
		var changes []trace.StateChange
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(handler)
		cfg.Traces = []*trace.Hooks{{StateChange: func(e trace.StateChange) {
			<-hang
			changes = append(changes, e)
		}}}
		s := fixture.Connect(t, cfg)
		synctest.Wait() // the trace has the first change
		suspended := 0
		for range maxQueued/2 + 10 { // two changes each
			srv.Disconnect()
			bubble.Pass(1100 * time.Millisecond)
			suspended++
		}
		require.Equal(t, connstate.Connected, s.State())
		left := 0
		for _, record := range handler.take() {
			if record.Message == "callback blocked; dropping calls" {
				left++
			}
		}
		require.Equal(t, 1, left, "at once, and then once a minute at most")
		close(hang)
		synctest.Wait()
		require.Len(t, changes, 1+maxQueued)
		srv.Disconnect()
		bubble.Pass(1100 * time.Millisecond)
		synctest.Wait()
		require.Len(t, changes, 1+maxQueued+2)
	})
}
