package shared

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// All callers with the same key get one value while it is in use. Then nothing is kept.
func TestValuesAreSharedWhileInUse(t *testing.T) {
	type value struct{ name string }
	values := NewValues()
	share := func(key, name string) *value { return Value(values, key, func() *value { return &value{name} }) }
	first := share("a", "first")
	runtime.GC()
	require.Same(t, first, share("a", "second"))
	require.Equal(t, "other", share("b", "other").name)
	require.Equal(t, "first", first.name)
	runtime.KeepAlive(first)
	testkit.Eventually(t, func() bool {
		runtime.GC()
		values.mu.Lock()
		defer values.mu.Unlock()
		return len(values.byKey) == 0
	}, "nothing is kept")
	require.Equal(t, "third", share("a", "third").name)
}
