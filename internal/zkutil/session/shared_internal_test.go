package session

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Everybody who asks for a key gets one value for as long as somebody uses it. Then nothing is kept.
func TestShare(t *testing.T) {
	type value struct{ name string }
	s := newSession(Config{}, false)
	share := func(key, name string) *value { return Share(s, key, func() *value { return &value{name} }) }
	first := share("a", "first")
	runtime.GC()
	require.Same(t, first, share("a", "second"))
	require.Equal(t, "other", share("b", "other").name)
	require.Equal(t, "first", first.name)
	runtime.KeepAlive(first)
	testkit.Eventually(t, func() bool {
		runtime.GC()
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		return len(s.shared.values) == 0
	}, "nothing is kept")
	require.Equal(t, "third", share("a", "third").name)
}
