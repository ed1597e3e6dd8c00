//go:build !linux

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
)

// No server is asked before a command is refused.
func TestCommandsUnderALockNeedLinux(t *testing.T) {
	for _, args := range [][]string{
		{"lock", "/p", "--", "true"},
		{"elect", "/p", "--", "true"},
		{"once", "--at", "2026-11-26", "/p", "--", "true"},
	} {
		root := newRoot()
		root.SetArgs(args)
		err := root.Execute()
		require.ErrorContains(t, err, "needs Linux", args)
		require.Equal(t, exit.Machine, exit.CodeOf(err), args)
	}
}
