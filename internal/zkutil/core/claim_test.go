package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each key completes "a claim …".
func TestClaim(t *testing.T) {
	for name, test := range map[string]struct {
		Claim
		want Verdict
	}{
		"that nothing speaks against is granted":       {Claim{IsTrusted: true}, Granted},
		"without a proof has to wait for one":          {Claim{}, Unproven},
		"from before a change needs another look":      {Claim{IsStale: true, IsTrusted: true}, Stale},
		"from before a change needs no proof":          {Claim{IsStale: true}, Stale},
		"on a deleted znode is lost":                   {Claim{IsDeleted: true, IsStale: true, IsTrusted: true}, Deleted},
		"of another session is lost":                   {Claim{IsOver: true, IsDeleted: true, IsStale: true, IsTrusted: true}, Over},
		"of a client that closes ends with the client": {Claim{IsClosing: true, IsOver: true, IsDeleted: true, IsStale: true, IsTrusted: true}, Closing},
	} {
		require.Equal(t, test.want, test.Decide(), "a claim %s", name)
	}
}
