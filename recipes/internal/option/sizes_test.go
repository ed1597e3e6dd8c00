package option_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An id and a name of the longest length are taken, and those that are a byte longer are not. The length is in bytes.
func TestLongestIDAndName(t *testing.T) {
	var id []byte
	var name string
	require.NoError(t, option.SetID(&id, strings.Repeat("a", 64<<10)))
	require.Error(t, option.SetID(&id, strings.Repeat("a", 64<<10+1)))
	require.NoError(t, option.SetName(&name, strings.Repeat("a", 128)))
	require.NoError(t, option.SetName(&name, strings.Repeat("ä", 64)))
	require.Error(t, option.SetName(&name, strings.Repeat("a", 129)))
	require.Error(t, option.SetName(&name, strings.Repeat("ä", 64)+"a"))
	require.Equal(t, strings.Repeat("ä", 64), name, "a name that is refused is not set")
}
