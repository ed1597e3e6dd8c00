package chaos

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The error of a process is dropped only if it was killed, not if it ended by itself.
func TestIsKilled(t *testing.T) {
	failed := exec.CommandContext(t.Context(), "false")
	require.Error(t, failed.Run())
	require.False(t, isKilled(failed))

	killed := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, killed.Start())
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	require.True(t, isKilled(killed))
}

// The output of a process is cut after its first lines, and not inside a character.
func TestFirstBytes(t *testing.T) {
	require.Equal(t, "panic: x", firstBytes("panic: x"))
	require.Equal(t, "x"+strings.Repeat("é", 999), firstBytes("x"+strings.Repeat("é", 2000)))
}

// Times in which several processes did not run count once, and only those within the given time.
func TestStarvedWithin(t *testing.T) {
	h := &History{Starved: []Fault{
		{Proc: 1, From: 4 * second, To: 6 * second},
		{Proc: 2, From: 5 * second, To: 7 * second},
		{Proc: 1, From: 1 * second, To: 3 * second},
		{Proc: 3, From: 5 * second, To: 6 * second},
		{Kind: stalled, From: 9 * second, To: 10 * second},
	}}
	for within, seconds := range map[[2]int64]int64{{0, 20}: 6, {2, 20}: 5, {5, 20}: 3, {8, 20}: 1, {10, 20}: 0, {2, 5}: 2, {0, 1}: 0} {
		require.EqualValues(t, seconds*second, h.StarvedWithin(within[0]*second, within[1]*second), within)
	}
}
