package cohort

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var bounds = Bounds{MaxPasses: 3, MaxTenure: time.Second, Linger: 10 * time.Millisecond}

func TestNextMoveOfATenure(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		stay
		want move
	}{
		"the first caller":               {stay{isAwaited: true, isKnown: true, mayOthersWait: true, passes: 3, waited: time.Hour}, passOn},
		"the first caller, revoked":      {stay{isAwaited: true, isKnown: true, isRevoked: true}, passOn},
		"revoked":                        {stay{isAwaited: true, hasServed: true, isKnown: true, isRevoked: true}, yield},
		"revoked while it lingers":       {stay{hasServed: true, isKnown: true, isRevoked: true, free: ms}, yield},
		"nobody else waits":              {stay{isAwaited: true, hasServed: true, isKnown: true, passes: 99}, passOn},
		"below the bounds":               {stay{isAwaited: true, hasServed: true, isKnown: true, mayOthersWait: true, passes: 2, waited: time.Second - 1}, passOn},
		"MaxPasses":                      {stay{isAwaited: true, hasServed: true, isKnown: true, mayOthersWait: true, passes: 3, waited: ms}, yield},
		"MaxTenure":                      {stay{isAwaited: true, hasServed: true, isKnown: true, mayOthersWait: true, waited: time.Second}, yield},
		"at the bounds before a listing": {stay{isAwaited: true, hasServed: true, mayOthersWait: true, passes: 3, waited: ms}, look},
		"below the bounds, no listing":   {stay{isAwaited: true, hasServed: true, mayOthersWait: true, passes: 2, waited: ms}, passOn},
		"lingers":                        {stay{hasServed: true, isKnown: true, free: 10*ms - 1}, linger},
		"has lingered":                   {stay{hasServed: true, isKnown: true, free: 10 * ms}, yield},
		"lingers before a listing":       {stay{hasServed: true, mayOthersWait: true, waited: ms, free: ms}, linger},
		"no lingering while others wait": {stay{hasServed: true, isKnown: true, mayOthersWait: true, waited: ms, free: ms}, yield},
		"no lingering before a caller":   {stay{isKnown: true}, yield},
	} {
		require.Equal(t, test.want, bounds.next(test.stay), name)
	}
}

// Whatever a cohort knows, it keeps to these rules.
func TestEveryMoveOfATenure(t *testing.T) {
	for bits := range 1 << 5 {
		for passes := range 5 {
			for _, waited := range []time.Duration{0, time.Second - 1, time.Second} {
				for _, free := range []time.Duration{0, bounds.Linger - 1, bounds.Linger} {
					requireRules(t, stay{bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0, bits&16 > 0, passes, waited, free})
				}
			}
		}
	}
}

func requireRules(t *testing.T, s stay) {
	t.Helper()
	next := bounds.next(s)
	isWithin := s.passes < bounds.MaxPasses && s.waited < bounds.MaxTenure
	if s.isAwaited && !s.hasServed {
		require.Equal(t, passOn, next, "the first caller is served: %+v", s)
		return
	}
	require.True(t, next != passOn || s.isAwaited, "the lock is passed to a caller: %+v", s)
	require.True(t, next != passOn || !s.isRevoked, "a revoked tenure ends: %+v", s)
	require.True(t, next != passOn || !s.mayOthersWait || isWithin, "others don't wait beyond the bounds: %+v", s)
	require.True(t, next != linger || !s.isAwaited && !s.isRevoked && s.free < bounds.Linger, "nobody waits for a tenure that lingers: %+v", s)
	require.True(t, next != linger || !s.mayOthersWait || !s.isKnown, "a tenure does not linger while others are known to wait: %+v", s)
	require.True(t, next != look || s.isAwaited && !s.isKnown && s.mayOthersWait && !isWithin, "a look is for a reason: %+v", s)
	require.True(t, next != yield || s.isRevoked || !s.isAwaited || s.mayOthersWait && s.isKnown && !isWithin, "a tenure ends for a reason: %+v", s)
}
