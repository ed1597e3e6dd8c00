package latch

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "latch /path", with the path passed to New.
func (l *LeaderLatch) String() string { return l.base.String() }

// Format writes String for every verb.
func (l *LeaderLatch) Format(f fmt.State, _ rune) { recipe.WriteTo(f, l) }

// LogValue returns a group with the recipe, path, id and name, and whether the latch leads.
func (l *LeaderLatch) LogValue() slog.Value {
	return l.base.LogValue(slog.Bool("leading", l.HasLeadership()))
}
