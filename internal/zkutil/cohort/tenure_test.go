package cohort

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func TestNextMoveOfATenure(t *testing.T) {
	const awaited, alone = true, false
	for name, test := range map[string]struct {
		tenure    tenure
		since     time.Duration // for how long a contender from elsewhere has waited; 0: none waits
		free      time.Duration // for how long nobody inside has held the lock
		isAwaited bool
		want      move
	}{
		"the first caller":               {tenure: tenure{isKnown: true, passes: 3}, since: time.Hour, isAwaited: awaited, want: passOn},
		"nobody else waits":              {tenure: tenure{isKnown: true, hasServed: true, passes: 99}, isAwaited: awaited, want: passOn},
		"below the bounds":               {tenure: tenure{isKnown: true, hasServed: true, passes: 2}, since: time.Millisecond, isAwaited: awaited, want: passOn},
		"MaxPasses":                      {tenure: tenure{isKnown: true, hasServed: true, passes: 3}, since: time.Millisecond, isAwaited: awaited, want: yield},
		"MaxTenure":                      {tenure: tenure{isKnown: true, hasServed: true}, since: time.Second, isAwaited: awaited, want: yield},
		"at the bounds before a listing": {tenure: tenure{hasServed: true, passes: 3}, since: time.Millisecond, isAwaited: awaited, want: look},
		"below the bounds, no listing":   {tenure: tenure{hasServed: true, passes: 2}, since: time.Millisecond, isAwaited: awaited, want: passOn},
		"lingers":                        {tenure: tenure{isKnown: true, hasServed: true}, free: 9 * time.Millisecond, isAwaited: alone, want: linger},
		"has lingered":                   {tenure: tenure{isKnown: true, hasServed: true}, free: 10 * time.Millisecond, isAwaited: alone, want: yield},
		"lingers before a listing":       {tenure: tenure{hasServed: true}, since: time.Millisecond, free: time.Millisecond, isAwaited: alone, want: linger},
		"no lingering while others wait": {tenure: tenure{isKnown: true, hasServed: true}, since: time.Millisecond, free: time.Millisecond, isAwaited: alone, want: yield},
		"no lingering before a caller":   {tenure: tenure{isKnown: true}, isAwaited: alone, want: yield},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				tenure := test.tenure
				tenure.base = fixture.Acquire(t, fixture.MutexOn(fixture.Connect(t, srv.Config(time.Minute)), "/m"))
				tenure.c = &cohort{bounds: Bounds{MaxPasses: 3, MaxTenure: time.Second, Linger: 10 * time.Millisecond}}
				now := time.Now()
				tenure.freeAt = now.Add(-test.free)
				if test.since > 0 {
					tenure.othersSince = now.Add(-test.since)
				}
				require.Equal(t, test.want, tenure.next(now, test.isAwaited))
				fixture.Settle() // the holder watches its znode
				srv.Put(tenure.base.Path(), []byte(session.Revocation))
				fixture.Settle()
				want := yield
				if test.isAwaited && !test.tenure.hasServed {
					want = passOn // the first caller learns of the revocation
				}
				require.Equal(t, want, tenure.next(now, test.isAwaited), "after a revocation")
				require.NoError(t, tenure.base.Leave())
			})
		})
	}
}
