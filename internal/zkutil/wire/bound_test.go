package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a password of zero bytes marks a server that resumes no session.
func TestEmptyPassword(t *testing.T) {
	require.True(t, isEmptyPassword(make([]byte, 16)))
	require.True(t, isEmptyPassword(nil))
	require.False(t, isEmptyPassword([]byte{0, 0, 1}))
}
