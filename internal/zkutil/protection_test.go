package zkutil

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewUUID(t *testing.T) {
	canonical := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var all []string
	for range 1000 {
		uuid := NewUUID()
		require.Len(t, uuid, 36)
		require.Regexp(t, canonical, uuid)
		all = append(all, uuid)
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 1000)
}
