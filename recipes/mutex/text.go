package mutex

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "mutex /path", with the path passed to New.
func (m *InterProcessMutex) String() string { return m.base.String() }

// Format writes String for every verb.
func (m *InterProcessMutex) Format(f fmt.State, _ rune) { recipe.WriteTo(f, m) }

// LogValue returns a group with the recipe, path, id and name.
func (m *InterProcessMutex) LogValue() slog.Value { return m.base.LogValue() }
