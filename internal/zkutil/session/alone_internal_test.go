package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A contender with the next number is alone only if everything is known that alone.go asks for.
func TestIsAlone(t *testing.T) {
	standing := func() *Watch { return &Watch{fired: make(chan struct{})} }
	watch := standing()
	const base, next = "/d/_c_x-lock-0000000006", "/d/_c_y-lock-0000000007"
	for name, tt := range map[string]struct {
		change   func(s *Session, a *alone)
		path     string
		before   *Watch
		isLikely bool
		isAlone  bool
	}{
		"alone":               {nil, next, watch, true, true},
		"not enough in a row": {func(_ *Session, a *alone) { a.inARow = enoughAlone - 1 }, next, watch, false, true},
		"the base is there":   {func(s *Session, _ *alone) { s.budget.nodes[base] = &charge{} }, next, watch, false, false},
		"somebody in between": {nil, "/d/_c_y-lock-0000000008", watch, true, false},
		"a lower number":      {nil, "/d/_c_y-lock-0000000006", watch, true, false},
		"no number":           {nil, "/d/_c_y-lock--000000007", watch, true, false},
		"the watch has fired": {
			func(s *Session, a *alone) {
				s.watches[wire.WatchKey{Path: "/d", Kind: wire.WatchData}] = a.watch
				s.fireWatches("/d", zk.EventNodeDeleted)
			}, next, nil, false, false,
		},
		"children came and went": {
			func(s *Session, _ *alone) { s.fireWatches("/d", zk.EventNodeChildrenChanged) }, next, watch, true, true,
		},
		"another queue":         {func(_ *Session, a *alone) { a.prefix = "__WRIT__" }, next, watch, false, false},
		"a session timeout ago": {func(s *Session, a *alone) { a.at = s.clock.now().Add(-10 * time.Second) }, next, watch, false, false},
		"a moment less":         {func(s *Session, a *alone) { a.at = s.clock.now().Add(-9 * time.Second) }, next, watch, true, true},
		"a watch since the try": {nil, next, standing(), true, false},
		"a watch since the base": {
			func(_ *Session, a *alone) { a.before = nil }, next, watch, false, false,
		},
		"another watch since the base": {
			func(_ *Session, a *alone) { a.before = standing() }, next, watch, false, false,
		},
		"no watch": {func(_ *Session, a *alone) { a.before, a.watch = nil, nil }, next, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(Config{Suspended: func() time.Duration { return 0 }})
			s.live.timeout = 10 * time.Second
			own := standing()
			a := &alone{
				prefix: "lock-", path: base, number: 6, at: s.clock.now(), before: own, inARow: enoughAlone, isWatched: true, watch: own,
			}
			s.alone.dirs["/d"], s.alone.watches = a, 1
			if tt.change != nil {
				tt.change(s, a)
			}
			before := tt.before
			if before == watch {
				before = a.watch
			}
			_, isLikely := s.mayBeAlone("/d", "lock-")
			require.Equal(t, tt.isLikely, isLikely)
			require.Equal(t, tt.isAlone, s.isAlone("/d", "lock-", tt.path, before))
			require.False(t, s.isAlone("/e", "lock-", tt.path, before))
		})
	}
}

// What a session remembers of directories is bounded, and goes with the connection.
func TestAloneIsBounded(t *testing.T) {
	s := newSession(Config{Suspended: func() time.Duration { return 0 }})
	s.wire = &wire.Wire{}
	watched := func(i int) string { return fmt.Sprint("/watched/", i) }
	s.alone.watches = maxAlone / 2
	for i := range maxAlone / 2 {
		s.alone.dirs[watched(i)] = &alone{isWatched: true}
	}
	for i := range 3 * maxAlone {
		for number := range 2 * enoughAlone {
			s.NoteFirst(fmt.Sprint("/d/", i), "lock-", fmt.Sprintf("/d/%d/_c_x-lock-%010d", i, number), nil)
		}
		require.LessOrEqual(t, len(s.alone.dirs), maxAlone)
	}
	require.Equal(t, 2*enoughAlone-1, s.alone.dirs[fmt.Sprint("/d/", 3*maxAlone-1)].inARow)
	require.NotNil(t, s.alone.dirs[watched(0)], "its watch stands")
	require.Equal(t, maxAlone/2, s.alone.watches)

	s.watches[wire.WatchKey{Path: watched(0), Kind: wire.WatchData}] = &Watch{fired: make(chan struct{})}
	s.fireWatches(watched(0), zk.EventNodeDeleted)
	require.Nil(t, s.alone.dirs[watched(0)])
	require.Equal(t, maxAlone/2-1, s.alone.watches, "there is room for another")
	s.alone.forget(watched(0))
	require.Equal(t, maxAlone/2-1, s.alone.watches)

	s.loseWatchesLocked()
	require.Empty(t, s.alone.dirs)
	require.Zero(t, s.alone.watches)
}
