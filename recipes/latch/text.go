package latch

import (
	"log/slog"
)

// String returns "latch /path", with the path passed to New.
func (l *LeaderLatch) String() string { return l.base.String() }

// LogValue returns a group with the recipe, path, id and name, and whether the latch leads.
func (l *LeaderLatch) LogValue() slog.Value {
	return l.base.LogValue(slog.Bool("leading", l.HasLeadership()))
}
