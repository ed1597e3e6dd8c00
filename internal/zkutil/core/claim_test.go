package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each key completes "a claim …".
func TestClaim(t *testing.T) {
	const proven = time.Second
	for name, test := range map[string]struct {
		change func(*Session, *Claim)
		now    time.Duration
		want   Verdict
	}{
		"that nothing speaks against is granted":       {want: Granted},
		"without a proof has to wait for one":          {now: proven, want: Unproven},
		"during an outage is granted":                  {change: func(s *Session, _ *Claim) { s.IsConnected = false }, want: Granted},
		"during an outage that ends holds has to wait": {change: func(s *Session, _ *Claim) { s.IsConnected, s.suspendEnds = false, true }, want: Unproven},
		"from another connection needs another look":   {change: func(s *Session, _ *Claim) { s.Epoch++ }, now: proven, want: Stale},
		"from before a change needs another look":      {change: func(_ *Session, c *Claim) { c.HasChanged = true }, now: proven, want: Stale},
		"on a deleted znode is lost":                   {change: func(_ *Session, c *Claim) { c.HasChanged, c.IsDeleted = true, true }, now: proven, want: Deleted},
		"of another session is lost":                   {change: func(s *Session, c *Claim) { s.ID, c.IsDeleted = 8, true }, now: proven, want: Over},
		"of a session that is over is lost":            {change: func(s *Session, _ *Claim) { s.ID = 0 }, want: Over},
		"of a client that closes ends with the client": {change: func(s *Session, _ *Claim) { s.ID, s.Phase = 8, Closing }, now: proven, want: Closed},
	} {
		s, c := NewSession(NewLedger(time.Second, 0), false), Claim{Owner: 7, Epoch: 3}
		s.ID, s.Epoch, s.IsConnected, s.until = 7, 3, true, time.Unix(0, int64(proven))
		if test.change != nil {
			test.change(&s, &c)
		}
		require.Equal(t, test.want, s.Judge(c, time.Unix(0, int64(test.now))), "a claim %s", name)
	}
}
