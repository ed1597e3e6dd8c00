package logs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
)

// Logger writes the records of one session. All methods may be called concurrently, and under any lock.
type Logger struct {
	ctx    context.Context //nolint:containedctx // of the records
	own    *slog.Logger    // the user's; nil: slog.Default(), as it is at each record
	order  *callbacks.Order
	levels levels

	dropped atomic.Int64 // records since the latest passed to the handler

	mu       sync.Mutex           // protects the fields below
	warnedAt map[string]time.Time // see MayWarnOf
	leftOut  map[string]int       // calls of functions of the user (see NoteLeftOut)
}

// New returns a Logger. logger may be nil: then the records go to slog.Default(), as it is at each record. order belongs to the
// Logger: see callbacks.Runner.NewSilentOrder.
func New(ctx context.Context, logger *slog.Logger, order *callbacks.Order) *Logger {
	return &Logger{ctx: ctx, own: logger, order: order, warnedAt: map[string]time.Time{}, leftOut: map[string]int{}}
}

func (l *Logger) logger() *slog.Logger {
	if l.own != nil {
		return l.own
	}
	return slog.Default()
}

// Log hands a record to the user's logger. The source of the record is the caller.
func (l *Logger) Log(level slog.Level, msg string, args ...any) { l.LogAbove(1, level, msg, args...) }

// LogAbove is Log for a function that writes for its own caller. The source of the record is depth calls above.
func (l *Logger) LogAbove(depth int, level slog.Level, msg string, args ...any) {
	if write := l.newWrite(depth, level, msg, args); write != nil {
		if isQueued, isFinished := l.order.Offer(write); !isQueued && !isFinished {
			l.dropped.Add(1)
		}
	}
}

// LogPanic logs a panic of the user's code.
func (l *Logger) LogPanic(value any, stack []byte) {
	write := l.log(slog.LevelError, "panic in a callback", []any{"err", fmt.Sprint(value), "stack", string(stack)})
	if write == nil {
		return
	}
	switch isQueued, isFinished := l.order.Offer(write); {
	case isFinished:
		l.order.RunHere(write) // because a closed session accepts no more callbacks
	case !isQueued:
		l.dropped.Add(1)
	}
}

// newWrite returns the function that hands a record to the handler, nil if the logger does not want the record.
func (l *Logger) newWrite(depth int, level slog.Level, msg string, args []any) func() {
	logger := l.logger()
	if logger.Handler() == slog.DiscardHandler || !l.levels.mayWant(logger, level) {
		return nil
	}
	var callers [1]uintptr
	runtime.Callers(3+depth, callers[:]) // without Callers, newWrite and its caller
	at := time.Now()
	args = withReadableDurations(args)
	return func() {
		if !logger.Enabled(l.ctx, level) {
			l.levels.noteDisabled(logger, level)
			return
		}
		record := slog.NewRecord(at, level, msg, callers[0])
		record.Add(args...)
		if dropped := l.dropped.Swap(0); dropped > 0 {
			record.AddAttrs(slog.Int64("records_dropped", dropped))
		}
		_ = logger.Handler().Handle(l.ctx, record) // as slog.Logger does
	}
}

// log is newWrite for a record of its caller.
func (l *Logger) log(level slog.Level, msg string, args []any) func() {
	return l.newWrite(1, level, msg, args)
}

// withReadableDurations replaces durations by their texts, because slog.JSONHandler writes them as numbers without a unit.
func withReadableDurations(args []any) []any {
	readable := slices.Clone(args)
	for i, arg := range readable {
		if d, ok := arg.(time.Duration); ok {
			readable[i] = d.String()
		}
	}
	return readable
}

// levels is what is known of the levels that a logger wants.
type levels struct {
	mu         sync.Mutex // protects the fields below
	logger     *slog.Logger
	disabledAt map[slog.Level]time.Time // when this logger last reported a level as disabled
}

// askAgainAfter is how long a logger's answer that a level is disabled is used. Meanwhile a program may
// change the level.
const askAgainAfter = time.Second

// mayWant reports whether a logger may want records of a level, as far as known.
func (l *levels) mayWant(logger *slog.Logger, level slog.Level) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logger != logger {
		l.logger, l.disabledAt = logger, map[slog.Level]time.Time{}
	}
	at, isDisabled := l.disabledAt[level]
	return !isDisabled || time.Since(at) >= askAgainAfter
}

// noteDisabled records that a logger does not want records of a level.
func (l *levels) noteDisabled(logger *slog.Logger, level slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logger == logger {
		l.disabledAt[level] = time.Now()
	}
}

// Warnings of one kind about one directory are logged at most once in warnPause, because goroutines sharing a client
// may well wait for each other all the time. maxWarned bounds the memory.
const (
	warnPause = time.Minute
	maxWarned = 1024
)

// MayWarnOf reports whether a warning about a subject is due, and if so counts the warning as given.
func (l *Logger) MayWarnOf(subject string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mayWarnOfLocked(subject)
}

func (l *Logger) mayWarnOfLocked(subject string) bool {
	now := time.Now()
	if last, wasWarned := l.warnedAt[subject]; wasWarned && now.Sub(last) < warnPause {
		return false
	}
	if len(l.warnedAt) >= maxWarned {
		clear(l.warnedAt)
	}
	l.warnedAt[subject] = now
	return true
}

// NoteLeftOut counts a call of a user's function that is left out, because the function does not return. A warning has the
// count.
func (l *Logger) NoteLeftOut(function string) {
	l.mu.Lock()
	l.leftOut[function]++
	n, isDue := l.leftOut[function], l.mayWarnOfLocked(function)
	l.mu.Unlock()
	if isDue {
		l.Log(slog.LevelWarn, "callback blocked; dropping calls", "function", function, "waiting", callbacks.MaxQueued, "dropped", n)
	}
}

// OfConn returns a logger for zk.Conn, whose lines are logged at debug level. Use it with zk.WithLogInfo(false), because the
// other lines print session ids.
func (l *Logger) OfConn() zk.Logger { return connLogger{l} }

type connLogger struct{ log *Logger }

// echoes are the prefixes of zk.Conn's lines about events that the session itself logs.
var echoes = []string{ //nolint:gochecknoglobals // a constant list
	"connected to", "failed to connect", "authentication failed", "send loop terminated", "recv loop terminated", "Failed to set previous watches",
}

func (c connLogger) Printf(format string, args ...any) {
	if !c.log.levels.mayWant(c.log.logger(), slog.LevelDebug) ||
		slices.ContainsFunc(echoes, func(begin string) bool { return strings.HasPrefix(format, begin) }) {
		return
	}
	c.log.Log(slog.LevelDebug, "zk.Conn: "+fmt.Sprintf(format, args...))
}
