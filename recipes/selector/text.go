package selector

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "selector /path", with the path passed to New.
func (s *LeaderSelector) String() string { return s.base.String() }

// Format writes String for every verb.
func (s *LeaderSelector) Format(f fmt.State, _ rune) { recipe.WriteTo(f, s) }

// LogValue returns a group with the recipe, path, id and name, and whether the selector leads.
func (s *LeaderSelector) LogValue() slog.Value {
	return s.base.LogValue(slog.Bool("leading", s.HasLeadership()))
}
