package once

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Occurrences of one format have a total order, and those of different formats have none: so no occurrence runs again after
// two others.
func TestOrderWithinEachFormat(t *testing.T) {
	occurrences := []string{
		"9", "10", "1a", "2a", "007", "7", "08x", "-1", "2026-11-26", "20261126", "build-9", "build-10", "\u0663", "\u06631", "0", "a", "zz",
		"100000000000000000000", "1.9", "1.10", "1.10.1", "2026-11-26T03:00", "2026-11-26T03:00Z", "2026-11-26T03:00:00.5Z", "",
		At(time.Unix(0, 0)), At(time.Unix(0, 1)),
	}
	for _, a := range occurrences {
		for _, b := range occurrences {
			ab, isOrdered := compare(a, b)
			ba, isOrderedToo := compare(b, a)
			require.Equal(t, isOrdered, isOrderedToo, "%s and %s", a, b)
			if !isOrdered {
				continue
			}
			require.Equal(t, ab, -ba, "%s and %s", a, b)
			for _, c := range occurrences {
				bc, isOrdered := compare(b, c)
				ac, isOrderedToo := compare(a, c)
				require.Equal(t, isOrdered, isOrderedToo, "%s, %s, %s", a, b, c)
				if isOrdered && ab < 0 && bc <= 0 {
					require.Negative(t, ac, "%s < %s <= %s", a, b, c)
				}
			}
		}
	}
}
