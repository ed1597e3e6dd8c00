package rwlock

import (
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// String returns "read lock /path", with the path passed to New.
func (l *Lock) String() string { return l.base.String() }

// Format writes String for every verb.
func (l *Lock) Format(f fmt.State, _ rune) { recipe.WriteTo(f, l) }

// LogValue returns a group with the recipe, path, id and name.
func (l *Lock) LogValue() slog.Value { return l.base.LogValue() }

// String returns "rwlock /path".
func (l *InterProcessReadWriteLock) String() string { return "rwlock " + l.read.base.Path }

// Format writes String for every verb.
func (l *InterProcessReadWriteLock) Format(f fmt.State, _ rune) { recipe.WriteTo(f, l) }

// LogValue returns a group with the recipe, path, id and name.
func (l *InterProcessReadWriteLock) LogValue() slog.Value {
	shown := l.read.base
	own := *shown.Queue
	own.Recipe = "rwlock"
	shown.Queue = &own
	return shown.LogValue()
}
