package selector

import (
	"log/slog"
)

// String returns "selector /path", with the path passed to New.
func (s *LeaderSelector) String() string { return s.base.String() }

// LogValue returns a group with the recipe, path, id and name, and whether the selector leads.
func (s *LeaderSelector) LogValue() slog.Value {
	return s.base.LogValue(slog.Bool("leading", s.HasLeadership()))
}
