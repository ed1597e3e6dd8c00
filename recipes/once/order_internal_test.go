package once

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The order of occurrences is total, whatever their formats are.
func TestOrderHasNoCircle(t *testing.T) {
	occurrences := []string{
		"9", "10", "1a", "007", "7", "08x", "-1", "2026-11-26", "20261126", "build-9", "build-10", "\u0663", "\u06631", "100000000000000000000", "0",
	}
	for _, a := range occurrences {
		for _, b := range occurrences {
			require.Equal(t, compare(a, b), -compare(b, a), "%s and %s", a, b)
			for _, c := range occurrences {
				if compare(a, b) < 0 && compare(b, c) <= 0 {
					require.Negative(t, compare(a, c), "%s < %s <= %s", a, b, c)
				}
			}
		}
	}
}
