package group

import (
	"log/slog"
)

// String returns "group /path", with the path passed to New.
func (g *Group) String() string { return g.base.String() }

// LogValue returns a group with the recipe, path and member.
func (g *Group) LogValue() slog.Value {
	return g.base.LogValue(slog.String("member", g.id))
}
