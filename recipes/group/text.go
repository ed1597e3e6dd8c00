package group

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "group /path", with the path passed to New.
func (g *Group) String() string { return g.base.String() }

// Format writes String for every verb.
func (g *Group) Format(f fmt.State, _ rune) { recipe.WriteTo(f, g) }

// LogValue returns a group with the recipe, path and member.
func (g *Group) LogValue() slog.Value {
	return g.base.LogValue(slog.String("member", g.id))
}
