package once

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A failure is cut to what a record takes, between characters.
func TestLongFailuresAreCut(t *testing.T) {
	for _, n := range []int{0, 1, maxFailure - 1, maxFailure} {
		require.Len(t, shortened(strings.Repeat("a", n)), n)
	}
	require.Equal(t, strings.Repeat("a", maxFailure), shortened(strings.Repeat("a", maxFailure+1)))
	cut := shortened(strings.Repeat("a", maxFailure-1) + "é")
	require.Equal(t, strings.Repeat("a", maxFailure-1), cut)
	require.True(t, utf8.ValidString(cut))
	require.Equal(t, "ab", shortened("a\xffb"))
}

func TestRecordInWords(t *testing.T) {
	at := time.Date(2026, 11, 26, 3, 0, 7, 0, time.FixedZone("", 3600))
	for text, r := range map[string]Record{
		"none": {},
		"a by web-1: failed at 2026-11-26T02:00:07Z: disk full":                   {Occurrence: "a", ID: "web-1", FinishedAt: at, Failure: "disk full"},
		"a by web-1: finished at 2026-11-26T02:00:07Z":                            {Occurrence: "a", ID: "web-1", FinishedAt: at, Finished: true},
		"a by web-1: started at 2026-11-26T02:00:07Z, not known to have finished": {Occurrence: "a", ID: "web-1", StartedAt: at},
		`"a\n" by "\u202e": failed at 2026-11-26T02:00:07Z: "\x1b"`:               {Occurrence: "a\n", ID: "\u202e", FinishedAt: at, Failure: "\x1b"},
	} {
		require.Equal(t, text, r.String())
	}
}

// A record is JSON without the fields that it lacks, and a record without a number of runs is of one.
func TestTextOfARecord(t *testing.T) {
	at := time.Date(2026, 11, 26, 2, 0, 0, 0, time.FixedZone("", 3600))
	for text, r := range map[string]Record{
		`{"occurrence":"a","id":"web-1","token":7,"startedAt":"2026-11-26T01:00:00Z"}`: {Occurrence: "a", ID: "web-1", Token: 7, StartedAt: at, Runs: 1},
		`{"occurrence":"a","id":"","token":0,"startedAt":"2026-11-26T01:00:00Z","finishedAt":"2026-11-26T02:00:00Z","finished":true,"runs":2}`: {
			Occurrence: "a", StartedAt: at, FinishedAt: at.Add(time.Hour), Finished: true, Runs: 2,
		},
		`{"occurrence":"a","id":"","token":0,"failure":"panic"}`: {Occurrence: "a", Failure: "panic", Runs: 1},
	} {
		require.Equal(t, text, string(r.encode()))
		got, err := decode([]byte(text))
		require.NoError(t, err)
		require.True(t, got.StartedAt.Equal(r.StartedAt) && got.FinishedAt.Equal(r.FinishedAt))
		got.StartedAt, got.FinishedAt = r.StartedAt, r.FinishedAt
		require.Equal(t, r, got)
	}
	for _, empty := range []string{"", " \n"} {
		r, err := decode([]byte(empty))
		require.NoError(t, err)
		require.Zero(t, r)
	}
	for _, text := range []string{"x", "{", `{}`, `{"occurrence":""}`, `{"occurrence":7}`, strings.Repeat("x", 200)} {
		r, err := decode([]byte(text))
		require.ErrorIs(t, err, ErrRecord)
		require.Zero(t, r)
		require.Less(t, len(err.Error()), 200)
	}
}
