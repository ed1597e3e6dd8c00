package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The session knows the latest first hold of a directory for as long as it has contenders there, and no longer. A directory of
// the same path may then be another one.
func TestLatestFirst(t *testing.T) {
	s := &Session{budget: newBudget(1000)}
	latest := func() []string { return []string{s.LatestFirst("/a"), s.LatestFirst("/b")} }
	join := func(path, dir string) {
		p, err := s.budget.ask(dir, 100)
		require.NoError(t, err)
		c, err := p.begin(100)
		require.NoError(t, err)
		c.settle(path)
		p.End()
	}
	join("/a/1", "/a")
	join("/a/2", "/a")
	require.Equal(t, []string{"", ""}, latest())
	s.budget.noteFirst("/a/1")
	require.Equal(t, []string{"1", ""}, latest())
	s.budget.gone("/a/1")
	require.Equal(t, []string{"1", ""}, latest(), "the next contender may ask about it")
	s.budget.noteFirst("/a/2")
	require.Equal(t, []string{"2", ""}, latest())
	s.budget.gone("/a/2")
	require.Equal(t, []string{"", ""}, latest(), "no contender is left")

	join("/b/1", "/b") // perhaps with the room of /a
	require.Equal(t, []string{"", ""}, latest())
	s.budget.noteFirst("/a/2")
	require.Equal(t, []string{"", ""}, latest(), "that znode is gone")
	join("/b/permits/2", "/b")
	s.budget.noteFirst("/b/1")
	s.budget.noteFirst("/b/permits/2")
	require.Equal(t, []string{"", "1"}, latest(), "a permit is in another queue than its turn")
}
