package chaos

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The error of a process is dropped only if it was killed, not if it had ended by itself.
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

// What a process wrote is cut behind its first lines, and not inside a character.
func TestFirstBytes(t *testing.T) {
	require.Equal(t, "panic: x", firstBytes("panic: x"))
	require.Equal(t, "x"+strings.Repeat("é", 999), firstBytes("x"+strings.Repeat("é", 2000)))
}
