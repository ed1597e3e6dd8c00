package once

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "once /path", with the path passed to New.
func (o *Once) String() string { return o.base.String() }

// Format writes String for every verb.
func (o *Once) Format(f fmt.State, _ rune) { recipe.WriteTo(f, o) }

// LogValue returns a group with the recipe, path, id and name.
func (o *Once) LogValue() slog.Value { return o.base.LogValue() }
