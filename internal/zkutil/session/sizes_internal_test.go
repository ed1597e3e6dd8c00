package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An audit checks as many watches as it may, and no more bytes than it may, but one at least.
func TestWatchesBeyondOneAudit(t *testing.T) {
	watches := func(n, length int) []*Watch {
		all := make([]*Watch, n)
		for i := range all {
			all[i] = &Watch{path: "/" + strings.Repeat("a", length-1)}
		}
		return all
	}
	const header = 17
	for _, test := range []struct{ n, length, want int }{
		{0, 1, 0},
		{maxAudited, 1, maxAudited},
		{maxAudited + 1, 1, maxAudited},
		{2*maxAudited + 1, 1, maxAudited},
		{8, maxAuditedBytes/8 - header, 8},
		{9, maxAuditedBytes/8 - header, 8},
		{8, maxAuditedBytes/8 - header + 1, 7},
		{2, maxAuditedBytes + 1, 1},
	} {
		require.Equal(t, test.want, countAuditable(watches(test.n, test.length)), "%+v", test)
	}
}
