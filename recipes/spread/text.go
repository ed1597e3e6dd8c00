package spread

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "spread /path", with the path passed to New.
func (s *Spread) String() string { return "spread " + s.path }

// Format writes String for every verb, because a Spread has the session, whose secrets package fmt would print.
func (s *Spread) Format(f fmt.State, _ rune) { recipe.WriteTo(f, s) }

// LogValue returns a group with the recipe, path and id.
func (s *Spread) LogValue() slog.Value {
	if s.session == nil {
		return slog.StringValue(s.String())
	}
	return slog.GroupValue(slog.String("recipe", "spread"), slog.String("path", s.path), slog.String("id", s.group.ID()))
}
