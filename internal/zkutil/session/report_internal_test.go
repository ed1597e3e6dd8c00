package session

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// silent returns a session that was not started, and its log.
func silent(t *testing.T, cfg Config) (*Session, *testkit.Log) {
	t.Helper()
	log := &testkit.Log{}
	cfg.Logger = log.Logger(slog.LevelDebug)
	s := newSession(cfg)
	t.Cleanup(func() { <-s.callbacks.Finish() })
	return s, log
}

// take returns the lines of a log once it is written.
func take(log *testkit.Log) []string {
	synctest.Wait()
	return log.Take()
}

// A warning follows a session timeout that is shorter than before, or at most half of what was asked for and not known yet.
func TestWarningsOfShortTimeouts(t *testing.T) {
	const shorter, below = "shorter session timeout than before", "far below the requested one"
	for _, test := range []struct {
		timeout, before int // seconds
		want            []string
	}{
		{10, 0, nil},
		{6, 0, nil},
		{5, 0, []string{below}},
		{4, 0, []string{below}},
		{5, 5, nil},
		{6, 5, nil},
		{9, 10, []string{shorter}},
		{5, 10, []string{shorter, below}},
		{4, 5, []string{shorter, below}},
		{5, 4, []string{below}},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			s, log := silent(t, Config{SessionTimeout: 10 * time.Second})
			s.report.noteGrantLocked(time.Duration(test.timeout)*time.Second, time.Duration(test.before)*time.Second)
			require.Empty(t, take(log), "the connection is logged first")
			s.report.showShortGrantsLocked()
			lines := take(log)
			require.Len(t, lines, len(test.want), "%+v", test)
			for i, want := range test.want {
				require.Contains(t, lines[i], want)
			}
			s.report.showShortGrantsLocked()
			require.Empty(t, take(log), "each is written once")
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		s, log := silent(t, Config{SessionTimeout: 10 * time.Second})
		for i := range 2 * maxShortGrants {
			s.report.noteGrantLocked(time.Duration(4-i%2)*time.Second, 0)
		}
		s.report.showShortGrantsLocked()
		require.Len(t, take(log), maxShortGrants)
		for _, server := range []string{"a:1", "a:1", "b:1", "a:1"} {
			s.report.warnUncommittedLocked(server)
		}
		lines := take(log)
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], "commits nothing; no lease can be kept on it")
		require.Contains(t, lines[1], "server=b:1")
	})
}

// What the log says of the end of a hold depends on who ended it, and whether its znode stays.
func TestLogOfAnEndedHold(t *testing.T) {
	for name, test := range map[string]struct {
		cause     error
		keepsNode bool
		end       string // the level and the message at the end
		lost      int
		vacated   bool // a record when the znode is given up
	}{
		"released":           {cause: zkutil.ErrReleased, vacated: true},
		"closed":             {cause: zkutil.ErrClosed, end: `level=DEBUG msg="lease ended"`, vacated: true},
		"closed, of a term":  {cause: zkutil.ErrClosed, keepsNode: true, vacated: true},
		"over its maximum":   {cause: zkutil.ErrMaxHold, vacated: true},
		"session lost":       {cause: zkutil.ErrSessionLost, end: `level=WARN msg="lease lost"`, lost: 1},
		"suspended":          {cause: zkutil.ErrSuspended, end: `level=WARN msg="lease lost"`, lost: 1},
		"deleted":            {cause: zkutil.ErrNodeDeleted, end: `level=WARN msg="lease lost"`},
		"deleted, of a term": {cause: zkutil.ErrNodeDeleted, keepsNode: true, end: `level=WARN msg="lease lost"`},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s, log := silent(t, Config{SessionTimeout: 10 * time.Second, ID: []byte("web-1")})
				h := &Hold{s: s, core: core.Hold{KeepsNode: test.keepsNode, Cause: test.cause}, userPath: "/a", token: 7, grantedAt: time.Now(), why: errors.New("why")}
				h.endedAt = h.grantedAt.Add(time.Minute)
				h.showEndLocked(time.Time{})
				lines := take(log)
				require.Equal(t, test.end != "", len(lines) == 1, "%v", lines)
				if test.end != "" {
					require.Contains(t, lines[0], test.end+" path=/a token=7 id=web-1 held=1m0s")
					require.Contains(t, lines[0], "cause=")
				}
				require.Equal(t, test.lost, s.report.leasesLost)
				h.showVacatedLocked()
				lines = take(log)
				require.Equal(t, test.vacated, len(lines) == 1)
				if test.vacated {
					require.Contains(t, lines[0], `level=INFO msg="stepped down" path=/a token=7 id=web-1 led=1m0s cause=why`)
				}
				h.data = []byte("own")
				require.Equal(t, "own", h.id())
			})
		})
	}
}

// A hold is logged once it stands for longer than its own limit, or that of the client, unless it is a term or ended before.
func TestSlowHolds(t *testing.T) {
	for name, test := range map[string]struct {
		client, own time.Duration
		keepsNode   bool
		hasEnded    bool
		after       time.Duration // 0: never
	}{
		"none":             {},
		"its own":          {own: time.Minute, after: time.Minute},
		"the client's":     {client: time.Second, after: time.Second},
		"the client's too": {client: time.Second, own: time.Minute, after: time.Second},
		"of a term":        {own: time.Minute, keepsNode: true},
		"ended":            {own: time.Minute, hasEnded: true},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			s, log := silent(t, Config{SessionTimeout: 10 * time.Second, SlowHold: test.client, ID: []byte("web-1")})
			h := &Hold{s: s, core: core.Hold{KeepsNode: test.keepsNode}, userPath: "/a", token: 7, grantedAt: time.Now()}
			h.expectSlowLocked(test.own)
			if test.hasEnded {
				h.stopSlowLocked()
			}
			time.Sleep(test.after - 1) //nolint:forbidigo // virtual time
			require.Empty(t, take(log), name)
			time.Sleep(time.Hour) //nolint:forbidigo // virtual time
			lines := take(log)
			require.Equal(t, test.after > 0, len(lines) == 1, name)
			if test.after > 0 {
				require.Contains(t, lines[0], `level=WARN msg="slow hold" path=/a token=7 id=web-1 held=`+test.after.String())
			}
			h.core.Cause = zkutil.ErrReleased
			h.warnIfSlow()
			require.Empty(t, take(log))
			(&Hold{}).stopSlowLocked()
		})
	}
}

// The limit of a hold shortens its trust, and never extends it.
func TestEarlierOfALimit(t *testing.T) {
	at := time.Now()
	for _, test := range []struct{ limit, until, want time.Time }{
		{time.Time{}, time.Time{}, time.Time{}},
		{time.Time{}, at, at},
		{at, time.Time{}, at},
		{at, at.Add(1), at},
		{at.Add(1), at, at},
		{at, at, at},
	} {
		l := holdLimit{at: test.limit}
		require.Equal(t, test.want, l.earlierLocked(test.until))
		l.stopLocked()
	}
}

// A hold over its limit ended with ErrMaxHold, whatever ended it afterwards.
func TestWhyAHoldEnded(t *testing.T) {
	isOver, closed := holdLimit{isOver: true}, core.Hold{Cause: zkutil.ErrClosed}
	require.NoError(t, (&Hold{}).endedLocked())
	require.Equal(t, zkutil.ErrClosed, (&Hold{core: closed}).endedLocked())
	require.Equal(t, zkutil.ErrMaxHold, (&Hold{limit: isOver}).endedLocked())
	require.Equal(t, zkutil.ErrMaxHold, (&Hold{core: closed, limit: isOver}).endedLocked())
	require.NoError(t, (&holdLimit{}).errorLocked())
	require.Equal(t, zkutil.ErrMaxHold, isOver.errorLocked())
}
