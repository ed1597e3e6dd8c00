package once_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// Occurrences are ordered as people count. An occurrence before the latest one does not run, and is not called done.
func TestOrderOfOccurrences(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		at := time.Now().In(time.FixedZone("CET", 3600))
		require.Equal(f, "2000-01-01T00:00:00.001000000Z", once.At(at))
		for _, rising := range [][]string{
			{"7", "9", "10", "0011", "12", "100", "18446744073709551616"},
			{"build-9", "build-10", "build-011"},
			{"v1.9.0", "v1.10.0", "v1.10.0.1", "v1.10.1", "v2"},
			{"2026-W9", "2026-W10", "2027-W1"},
			{"2026-11-26T03", "2026-11-26T04", "2026-11-27T01"},
			{"alpha", "beta"},
			{once.At(at.Add(-24 * time.Hour)), "1999-12-31T23:00Z", "2000-01-01T00:30:00+01:00", once.At(at), once.At(at.Add(time.Nanosecond)), once.At(at.Add(time.Second))},
		} {
			require.NoError(f, o.Forget(f.Context()))
			for i, occurrence := range rising {
				var c counter
				require.NoError(f, o.Do(f.Context(), occurrence, c.run), occurrence)
				require.ErrorIs(f, o.Do(f.Context(), occurrence, c.run), once.ErrDone, occurrence)
				for _, earlier := range rising[:i] {
					err := o.Do(f.Context(), earlier, c.run)
					require.ErrorIs(f, err, once.ErrSuperseded, "%s after %s", earlier, occurrence)
					require.NotErrorIs(f, err, once.ErrDone)
					var superseded *once.SupersededError
					require.ErrorAs(f, err, &superseded)
					require.Equal(f, earlier, superseded.Occurrence)
					require.Equal(f, occurrence, superseded.Last.Occurrence)
				}
				require.EqualValues(f, 1, c.calls.Load())
			}
		}
	})
}

// One event under two names runs once.
func TestOneEventInTwoWays(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		for _, same := range [][]string{
			{"7", "007"},
			{"build-9", "build-09"},
			{once.At(time.Now().Truncate(time.Hour)), "2000-01-01T00:00Z", "2000-01-01T00:00:00Z", "2000-01-01T01:00:00+01:00"},
		} {
			require.NoError(f, o.Forget(f.Context()))
			var c counter
			require.NoError(f, o.Do(f.Context(), same[0], c.run))
			for _, again := range same {
				require.ErrorIs(f, o.Do(f.Context(), again, c.run), once.ErrDone, "%s after %s", again, same[0])
			}
			require.EqualValues(f, 1, c.calls.Load())
		}
	})
}

// An occurrence in another format may be the same event, or any other, so it is refused. After Forget, the path accepts the
// other format.
func TestChangeOfFormat(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		for _, pair := range [][2]string{
			{"1999-11-26T03:00", once.At(time.Date(1999, 11, 26, 3, 0, 0, 0, time.UTC))},
			{"1999-11-26T03:00", "1999-11-26T03:00Z"},
			{"1999-11-26", "1999-11-26T00:00"},
			{"nightly-2026-11-26", "1234"},
			{"v1.9", "1.9"},
			{"v1.10-rc1", "v1.10"},
			{"2026-Nov-30", "2026-Dec-01"},
			{"a", "1"},
			{"-1", "0"},
			{"９", "10"}, // a digit of another script, which is no number here
		} {
			for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
				require.NoError(f, o.Forget(f.Context()))
				var c counter
				require.NoError(f, o.Do(f.Context(), p[0], c.run))
				err := o.Do(f.Context(), p[1], c.run)
				require.ErrorIs(f, err, once.ErrFormat, "%s after %s", p[1], p[0])
				require.NotErrorIs(f, err, once.ErrDone)
				require.NotErrorIs(f, err, once.ErrSuperseded)
				require.ErrorContains(f, err, p[1]+" can't be ordered after "+p[0]+" by web-1")
				require.ErrorIs(f, o.Do(f.Context(), p[0], c.run), once.ErrDone)
				require.NoError(f, o.Forget(f.Context()))
				require.NoError(f, o.Do(f.Context(), p[1], c.run))
				require.EqualValues(f, 2, c.calls.Load())
			}
		}
	})
}
