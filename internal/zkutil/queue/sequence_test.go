package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSequenceOfOneMarker(t *testing.T) {
	sequence, ok := SequenceOf("_c_1-__READ__0000000007", "__READ__")
	require.True(t, ok)
	require.Equal(t, "0000000007", sequence)
	for _, name := range []string{"_c_1-lock-0000000007", "__READ__", "__READ__7", "config"} {
		_, ok = SequenceOf(name, "__READ__")
		require.False(t, ok, name)
	}
}
