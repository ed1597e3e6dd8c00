package testkit

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log keeps the records of a logger as lines: `level=INFO msg=connected server=…`, without the time.
type Log struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

// Logger returns a logger that writes records of a level and above to the log.
func (l *Log) Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// Write appends a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String returns the text since the last Take.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns the lines since the last Take.
func (l *Log) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.String()
	l.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
