package recipe

import (
	"fmt"
	"io"
	"log/slog"
)

// String returns the recipe and the path: "mutex /locks/a".
func (b Base) String() string {
	if b.Queue == nil {
		return "recipe(nil)"
	}
	return b.Queue.Recipe + " " + b.Path
}

// LogValue returns a group with the recipe, path and ID, the name if set, and more.
func (b Base) LogValue(more ...slog.Attr) slog.Value {
	if b.Queue == nil {
		return slog.StringValue(b.String())
	}
	attributes := []slog.Attr{slog.String("recipe", b.Queue.Recipe), slog.String("path", b.Path), slog.String("id", b.Queue.ID())}
	if b.Queue.Name != "" {
		attributes = append(attributes, slog.String("name", b.Queue.Name))
	}
	return slog.GroupValue(append(attributes, more...)...)
}

// WriteTo writes the text of a recipe for fmt, with any verb. A recipe with the session in a field needs it, because for a verb
// that does not suit text, package fmt follows the pointers in fields, and would print the secrets of the client.
func WriteTo(f fmt.State, recipe fmt.Stringer) { _, _ = io.WriteString(f, recipe.String()) }
