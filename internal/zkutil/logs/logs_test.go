package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/logs"
)

// newLog returns a log for a handler. Its runner is finished at the end of the test.
func newLog(t *testing.T, handler slog.Handler) (*logs.Logger, *callbacks.Runner) {
	t.Helper()
	var l *logs.Logger
	runner := callbacks.NewRunner(zkutil.NewScope(), func(value any, stack []byte) { l.LogPanic(value, stack) })
	var logger *slog.Logger
	if handler != nil {
		logger = slog.New(handler)
	}
	l = logs.New(context.Background(), logger, runner.NewSilentOrder())
	t.Cleanup(func() { <-runner.Finish() })
	return l, runner
}

// write is the function of an owner that writes to the log.
func write(l *logs.Logger, level slog.Level, msg string, args ...any) {
	l.LogAbove(1, level, msg, args...)
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

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

// dropped returns the number of dropped records that a record reports.
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
				hang := make(chan struct{})
				handler := &hangingHandler{hang: hang, level: slog.LevelWarn}
				l, _ := newLog(t, handler)
				begin := time.Now()
				write(l, slog.LevelWarn, "first")
				synctest.Wait() // the handler has it
				for i := range callbacks.MaxQueued + beyond {
					write(l, slog.LevelWarn, "event", "n", i)
				}
				pass(time.Second)
				close(hang)
				records := handler.take()
				require.Len(t, records, 1+callbacks.MaxQueued)
				require.Zero(t, dropped(records[0]))
				require.EqualValues(t, beyond, dropped(records[1]))
				require.Zero(t, dropped(records[2]))
				for _, record := range records {
					require.Equal(t, begin, record.Time)
					require.NotZero(t, record.PC)
				}
				write(l, slog.LevelWarn, "later")
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
		handler := &hangingHandler{level: slog.LevelInfo}
		l, _ := newLog(t, handler)
		asked := func() int {
			synctest.Wait()
			handler.mu.Lock()
			defer handler.mu.Unlock()
			return handler.asked[slog.LevelDebug]
		}
		before := asked()
		for range 100 {
			write(l, slog.LevelDebug, "detail")
			synctest.Wait()
		}
		require.Equal(t, before+1, asked())
		write(l, slog.LevelInfo, "event")
		require.Len(t, handler.take(), 1, "another level")
		handler.setLevel(slog.LevelDebug)
		pass(time.Second)
		write(l, slog.LevelDebug, "detail")
		write(l, slog.LevelDebug, "detail")
		require.Len(t, handler.take(), 2)
	})
}

// A panic in one function of the user is written in the background. The next function does not wait for a handler that hangs.
func TestPanicDoesNotWaitForTheHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		handler := &hangingHandler{hang: hang, level: slog.LevelError}
		_, runner := newLog(t, handler)
		order := runner.NewOrder(0)
		ran := false
		order.Post(func() { panic(errors.New("boom")) })
		order.Post(func() { ran = true })
		synctest.Wait()
		require.True(t, ran)
		close(hang)
		require.Len(t, handler.take(), 1)
	})
}

// A panic is logged even after the runner is finished, because a function may outlast Close.
func TestPanicAfterTheEndIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		handler := &hangingHandler{}
		l, runner := newLog(t, handler)
		<-runner.Finish()
		l.Log(slog.LevelError, "lost")
		l.LogPanic("too late", nil)
		records := handler.take()
		require.Len(t, records, 1)
		require.Equal(t, "panic in a callback", records[0].Message)
	})
}

// The source of a record is the caller of Log, or of the function that calls LogAbove.
func TestSourceOfARecord(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		handler := &hangingHandler{}
		l, _ := newLog(t, handler)
		write(l, slog.LevelInfo, "event")
		l.Log(slog.LevelInfo, "event")
		for _, record := range handler.take() {
			frame, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
			require.Contains(t, frame.Function, "TestSourceOfARecord")
		}
	})
}

// Without a logger the program's default is used, as it is when a record is written.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	testkit.Bubble(t, func(t *testing.T) {
		l, _ := newLog(t, nil)
		var text bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		l.Log(slog.LevelError, "later", "err", errors.New("cause"))
		synctest.Wait()
		require.Contains(t, text.String(), `msg=later err=cause`)
	})
}

// attributes returns the attributes of a record, as text.
func attributes(record slog.Record) string {
	var all []string
	record.Attrs(func(a slog.Attr) bool {
		all = append(all, a.String())
		return true
	})
	return strings.Join(all, " ")
}

// A panic counts among the dropped records, too, and a warning tells how many calls were left out, once a minute.
func TestWhatIsDroppedIsCounted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		handler := &hangingHandler{hang: hang, level: slog.LevelWarn}
		l, _ := newLog(t, handler)
		for range callbacks.MaxQueued + 1 {
			write(l, slog.LevelWarn, "event")
			synctest.Wait()
		}
		l.LogPanic("odd", nil)
		l.LogPanic("odd", nil)
		close(hang)
		records := handler.take()
		require.Len(t, records, callbacks.MaxQueued+1)
		require.EqualValues(t, 2, dropped(records[1]))

		for range 3 {
			l.NoteLeftOut("listener")
		}
		l.NoteLeftOut("error handler")
		pass(time.Minute)
		l.NoteLeftOut("listener")
		var got []string
		for _, record := range handler.take() {
			require.Equal(t, "callback blocked; dropping calls", record.Message)
			require.Equal(t, slog.LevelWarn, record.Level)
			got = append(got, attributes(record))
		}
		require.Equal(t, []string{
			"function=listener waiting=1024 dropped=1", "function=error handler waiting=1024 dropped=1", "function=listener waiting=1024 dropped=4",
		}, got)
	})
}

// Durations are readable, and the lines of zk.Conn are for debugging, without those about events that the session logs itself.
func TestTextsOfRecords(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		handler := &hangingHandler{level: slog.LevelDebug}
		l, _ := newLog(t, handler)
		args := []any{"waited", 90 * time.Second, "n", 7}
		write(l, slog.LevelInfo, "event", args...)
		require.Equal(t, 90*time.Second, args[1], "the caller's")
		l.LogPanic("odd", []byte("stack"))
		l.OfConn().Printf("connected to %s", "a:1")
		l.OfConn().Printf("recv loop terminated: %v", "x")
		l.OfConn().Printf("odd thing: %v", "x")
		records := handler.take()
		require.Len(t, records, 3)
		require.Equal(t, "waited=1m30s n=7", attributes(records[0]))
		require.Equal(t, slog.LevelError, records[1].Level)
		require.Equal(t, "panic in a callback", records[1].Message)
		require.Equal(t, "err=odd stack=stack", attributes(records[1]))
		require.Equal(t, slog.LevelDebug, records[2].Level)
		require.Equal(t, "zk.Conn: odd thing: x", records[2].Message)

		handler.setLevel(slog.LevelWarn)
		asked := handler.count(slog.LevelDebug)
		for range 3 {
			l.OfConn().Printf("odd thing: %v", "x")
			synctest.Wait()
		}
		require.Empty(t, handler.take())
		require.Equal(t, asked+1, handler.count(slog.LevelDebug), "the logger is asked once")
	})
}

func (h *hangingHandler) count(level slog.Level) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[level]
}
