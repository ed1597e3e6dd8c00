package rwlock

import (
	"log/slog"
)

// String returns "read-lock /path" or "write-lock /path", with the path passed to New.
func (l *Lock) String() string { return l.base.String() }

// LogValue returns a group with the recipe, path, id and name.
func (l *Lock) LogValue() slog.Value { return l.base.LogValue() }

// String returns "rwlock /path".
func (l *InterProcessReadWriteLock) String() string { return "rwlock " + l.read.base.Path }

// LogValue returns a group with the recipe, path, id and name.
func (l *InterProcessReadWriteLock) LogValue() slog.Value {
	shown := l.read.base
	if shown.Queue != nil { // not a zero value
		own := *shown.Queue
		own.Recipe = "rwlock"
		shown.Queue = &own
	}
	return shown.LogValue()
}
