package semaphore

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "semaphore /path", with the path passed to New.
func (s *InterProcessSemaphore) String() string { return s.base.String() }

// Format writes String for every verb.
func (s *InterProcessSemaphore) Format(f fmt.State, _ rune) { recipe.WriteTo(f, s) }

// LogValue returns a group with the recipe, path, id and name.
func (s *InterProcessSemaphore) LogValue() slog.Value { return s.base.LogValue() }

// String returns "semaphore mutex /path", with the path passed to NewMutex.
func (m *InterProcessSemaphoreMutex) String() string { return m.semaphore.base.String() }

// Format writes String for every verb.
func (m *InterProcessSemaphoreMutex) Format(f fmt.State, _ rune) { recipe.WriteTo(f, m) }

// LogValue returns a group with the recipe, path, id and name.
func (m *InterProcessSemaphoreMutex) LogValue() slog.Value { return m.semaphore.base.LogValue() }
