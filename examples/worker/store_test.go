package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sqliteStore is an empty store on a file of the test's own.
func sqliteStore(t *testing.T) *store {
	t.Helper()
	s, err := openStore(t.Context(), filepath.Join(t.TempDir(), "worker.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStoreOnSQLite(t *testing.T) { testStore(t, sqliteStore) }

// testStore is what every database has to do. open returns a store.
func testStore(t *testing.T, open func(*testing.T) *store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *store){
		"numbers the runs":                      testNumbers,
		"claims again with the same token":      testClaimsAgain,
		"refuses an earlier leader":             testRefusesEarlierLeader,
		"refuses a leader that has not claimed": testRefusesWithoutClaim,
		"lets a paused leader finish unopposed": testUnopposed,
		"records each number once":              testRecordsOnce,
		"fencing tokens as large as they get":   testLargeToken,
		"keeps the schedule":                    testSchedule,
		"knows the last leader":                 testLeadership,
		"forgets on reset":                      testReset,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			require.NoError(t, s.reset(t.Context()))
			test(t, s)
		})
	}
}

// A term counts once, however often its leader claims the job. A refusal changes only the number of refusals.
func testLeadership(t *testing.T, s *store) {
	t.Helper()
	none, err := s.leadership(t.Context())
	require.NoError(t, err)
	require.Zero(t, none.Token)
	for _, c := range []struct {
		token  int64
		leader string
	}{{33, "ann"}, {33, "ann"}, {40, "bob"}, {40, "bob"}} {
		_, err := s.claim(t.Context(), c.token, c.leader)
		require.NoError(t, err)
	}
	_, err = s.claim(t.Context(), 34, "cid")
	require.ErrorIs(t, err, errStale)
	require.NoError(t, s.noteRefusal(t.Context()))
	l, err := s.leadership(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), l.Since, time.Minute)
	l.Since = time.Time{}
	require.Equal(t, leadership{Leader: "bob", Token: 40, Handovers: 1, Refused: 1}, l)

	require.NoError(t, s.reset(t.Context()))
	l, err = s.leadership(t.Context())
	require.NoError(t, err)
	require.Zero(t, l.Token+l.Handovers+l.Refused)
}

func claim(t *testing.T, s *store, token int64) (number int64) {
	t.Helper()
	next, err := s.claim(t.Context(), token, "ann")
	require.NoError(t, err)
	return next.Number
}

func aRun(number, token int64) runRecord {
	return runRecord{
		Number: number, Token: token, Leader: "ann", Outcome: outcomeDone,
		Due: time.UnixMilli(1_700_000_000_000), Began: time.UnixMilli(1_700_000_000_123), Took: 250 * time.Millisecond,
	}
}

// nextDue is when the run after aRun is due.
var nextDue = time.UnixMilli(1_700_000_060_000)

// requireRuns compares the tokens of the runs, which are numbered from 1.
func requireRuns(t *testing.T, s *store, tokens ...int64) {
	t.Helper()
	runs, err := s.lastRuns(t.Context(), allRuns)
	require.NoError(t, err)
	require.Len(t, runs, len(tokens))
	for i, r := range runs {
		number := len(tokens) - i
		require.Equal(t, int64(number), r.Number)
		require.Equal(t, tokens[number-1], r.Token, "run %d", number)
	}
}

func testNumbers(t *testing.T, s *store) {
	t.Helper()
	require.Equal(t, int64(1), claim(t, s, 33))
	require.NoError(t, s.record(t.Context(), aRun(1, 33), nextDue))
	require.Equal(t, int64(2), claim(t, s, 33))
	require.Equal(t, int64(2), claim(t, s, 40), "a run that was not recorded is due again")
	require.NoError(t, s.record(t.Context(), aRun(2, 40), nextDue))
	requireRuns(t, s, 33, 40)

	runs, err := s.lastRuns(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []runRecord{aRun(2, 40)}, runs, "the latest, and all that was recorded of it")
}

// MySQL counts changed rows by default, and would refuse this claim.
func testClaimsAgain(t *testing.T, s *store) {
	t.Helper()
	require.Equal(t, int64(1), claim(t, s, 33))
	require.Equal(t, int64(1), claim(t, s, 33))
}

// The purpose of the token: 33 was paused between its claim and its record.
func testRefusesEarlierLeader(t *testing.T, s *store) {
	t.Helper()
	require.Equal(t, int64(1), claim(t, s, 33))
	require.Equal(t, int64(1), claim(t, s, 34))
	require.ErrorIs(t, s.record(t.Context(), aRun(1, 33), nextDue), errStale, "before its successor has recorded anything")
	require.NoError(t, s.record(t.Context(), aRun(1, 34), nextDue))
	require.ErrorIs(t, s.record(t.Context(), aRun(1, 33), nextDue), errStale, "and after")
	_, err := s.claim(t.Context(), 33, "ann")
	require.ErrorIs(t, err, errStale)
	requireRuns(t, s, 34)
}

func testRefusesWithoutClaim(t *testing.T, s *store) {
	t.Helper()
	claim(t, s, 33)
	require.ErrorIs(t, s.record(t.Context(), aRun(1, 35), nextDue), errStale)
	requireRuns(t, s)
}

// Without a later claim, finished work may still be recorded.
func testUnopposed(t *testing.T, s *store) {
	t.Helper()
	claim(t, s, 33)
	require.NoError(t, s.record(t.Context(), aRun(1, 33), nextDue))
	require.Equal(t, int64(2), claim(t, s, 34))
	requireRuns(t, s, 33)
}

func testRecordsOnce(t *testing.T, s *store) {
	t.Helper()
	claim(t, s, 33)
	require.NoError(t, s.record(t.Context(), aRun(1, 33), nextDue))
	require.Error(t, s.record(t.Context(), aRun(1, 33), nextDue))
	require.Equal(t, int64(2), claim(t, s, 33), "both or neither")
	requireRuns(t, s, 33)
}

// The due time is part of the recorded run, and as protected from earlier leaders.
func testSchedule(t *testing.T, s *store) {
	t.Helper()
	next, err := s.claim(t.Context(), 33, "ann")
	require.NoError(t, err)
	require.Equal(t, schedule{Number: 1}, next, "the first run has no time")
	require.NoError(t, s.record(t.Context(), aRun(1, 33), nextDue))
	for _, token := range []int64{33, 34} {
		next, err = s.claim(t.Context(), token, "ann")
		require.NoError(t, err)
		require.Equal(t, schedule{Number: 2, Due: nextDue}, next)
	}
	require.ErrorIs(t, s.record(t.Context(), aRun(2, 33), nextDue.Add(time.Minute)), errStale)
	next, err = s.schedule(t.Context())
	require.NoError(t, err)
	require.Equal(t, schedule{Number: 2, Due: nextDue}, next)
}

// The upper half of a zxid is the epoch: tokens are large from the start.
func testLargeToken(t *testing.T, s *store) {
	t.Helper()
	const token = 1<<63 - 1
	require.Equal(t, int64(1), claim(t, s, token))
	require.NoError(t, s.record(t.Context(), aRun(1, token), nextDue))
	requireRuns(t, s, token)
}

func testReset(t *testing.T, s *store) {
	t.Helper()
	claim(t, s, 33)
	require.NoError(t, s.record(t.Context(), aRun(1, 33), nextDue))
	require.NoError(t, s.reset(t.Context()))
	require.Equal(t, int64(1), claim(t, s, 1), "a new ensemble counts from the beginning")
	requireRuns(t, s)
}

func TestDatabaseThatCannotBeOpened(t *testing.T) {
	_, err := openStore(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "database: ")
}

// Every worker opens the database, and finds the data of the others.
func TestDatabaseOpensAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "worker.db")
	first, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	claim(t, first, 33)
	require.NoError(t, first.record(t.Context(), aRun(1, 33), nextDue))

	second, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	requireRuns(t, second, 33)
	_, err = second.claim(t.Context(), 32, "bob")
	require.ErrorIs(t, err, errStale)
}
