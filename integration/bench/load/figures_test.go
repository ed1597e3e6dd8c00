package load

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFiguresOfSpans(t *testing.T) {
	spans := []Span{ // the second waits while the first holds, the third starts later
		{Called: 15, Acquired: 33, Releasing: 40, Released: 44},
		{Called: 10, Acquired: 20, Releasing: 30, Released: 35},
		{Called: 50, Acquired: 60, Releasing: 61, Released: 70},
	}
	require.Equal(t, time.Duration(60), Wall(spans))
	require.Equal(t, []time.Duration{3}, Handoffs(spans), "33 after 30; nobody waited at 40")
	require.Equal(t, []time.Duration{22, 15, 19}, Pairs(spans))
	require.Equal(t, []time.Duration{18, 10, 10}, Waits(spans))
	require.Zero(t, Overlaps(spans))
	require.Equal(t, time.Duration(19), Quantile(Pairs(spans), 0.5))
	require.Equal(t, time.Duration(22), Quantile(Pairs(spans), 1))
	require.Zero(t, Quantile(nil, 0.5))
}

func TestOverlapsAreFound(t *testing.T) {
	long := Span{Called: 0, Acquired: 1, Releasing: 100, Released: 101}
	inside := Span{Called: 0, Acquired: 10, Releasing: 20, Released: 21}
	insideToo := Span{Called: 0, Acquired: 50, Releasing: 60, Released: 61}
	require.Equal(t, 2, Overlaps([]Span{long, inside, insideToo}))
	require.Equal(t, 1, Overlaps([]Span{long, {Acquired: 99, Releasing: 102}}))
	require.Zero(t, Overlaps([]Span{long, {Acquired: 100, Releasing: 102}}))
}

// Baskets may be held at once, unless they have an item in common.
func TestOverlapsOfBasketsNeedACommonItem(t *testing.T) {
	long := Span{Acquired: 1, Releasing: 100, Items: []int{1, 3, 5}}
	disjoint := Span{Acquired: 10, Releasing: 110, Items: []int{0, 2, 4}}
	sharing := Span{Acquired: 20, Releasing: 30, Items: []int{4, 5}} // with both
	later := Span{Acquired: 105, Releasing: 120, Items: []int{1, 4}} // with both, of which one is still held
	require.Zero(t, Overlaps([]Span{long, disjoint}))
	require.Equal(t, 1, Overlaps([]Span{long, sharing, disjoint}))
	require.Equal(t, 2, Overlaps([]Span{later, long, sharing, disjoint}))
	require.Zero(t, Overlaps([]Span{long, {Acquired: 100, Releasing: 102, Items: long.Items}}))
}

func TestSpansSurviveTheirFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spans")
	spans := []Span{
		{Called: 1, Acquired: 2, Releasing: 3, Released: 4},
		{Called: 1 << 40, Acquired: 1 << 41, Releasing: 1 << 42, Released: 1 << 43, Turn: 1 << 44},
	}
	require.NoError(t, writeSpans(file, spans))
	got, err := readSpans(file)
	require.NoError(t, err)
	require.Equal(t, spans, got)
}

// The answer to a command is one line, which must fit into the buffer of its reader.
func TestErrorsOfThousandsAreReportedAsOne(t *testing.T) {
	errs := make([]error, 5000)
	require.NoError(t, firstOf(errs))
	lost := errors.New("lost")
	errs[7] = lost
	require.Equal(t, lost, firstOf(errs))
	for i := range errs {
		errs[i] = fmt.Errorf("contender %d: %w", i, lost)
	}
	require.EqualError(t, firstOf(errs), "5000 contenders failed, one of them: contender 0: lost")
	require.ErrorIs(t, firstOf(errs), lost)
}

// The processes of a run compare their spans, so a process that is preempted while it reads the clocks must not be late.
func TestClocksAreAlignedThoughTheProcessIsPreempted(t *testing.T) {
	began := time.Now()
	passed := time.Duration(0) // since began, when the machine's clock was at 0
	pauses := []time.Duration{5 * time.Millisecond, 300 * time.Microsecond, time.Microsecond, time.Millisecond}
	machine := func() (int64, error) {
		at := passed
		if len(pauses) > 0 {
			passed, pauses = passed+pauses[0], pauses[1:]
		}
		return int64(at), nil
	}
	c, err := align(func() time.Time { return began.Add(passed) }, machine)
	require.NoError(t, err)
	require.InDelta(t, int64(passed), c.of(began.Add(passed)), float64(alignedWithin))
	require.Equal(t, []time.Duration{time.Millisecond}, pauses, "1 us is close enough")

	slow := 100 * time.Microsecond
	pauses = []time.Duration{slow, slow, 10 * time.Microsecond}
	for range alignments {
		pauses = append(pauses, slow)
	}
	c, err = align(func() time.Time { return began.Add(passed) }, machine)
	require.NoError(t, err)
	require.InDelta(t, int64(passed), c.of(began.Add(passed)), float64(5*time.Microsecond), "the closest counts when none is close")

	_, err = align(func() time.Time { passed += time.Second; return began.Add(passed) }, machine)
	require.ErrorContains(t, err, "the closest took 1s")

	failed := errors.New("no such clock")
	_, err = align(time.Now, func() (int64, error) { return 0, failed })
	require.ErrorIs(t, err, failed)
}
