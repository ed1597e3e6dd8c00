package cohort

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// holdOn returns a hold of a new session. The fixtures import this package, and can't be imported here.
func holdOn(t *testing.T, srv *zktest.Server) *session.Entry {
	t.Helper()
	s, err := session.Connect(t.Context(), session.Config{
		Servers: srv.Addrs(), Dialer: srv.Dialer(), SessionTimeout: time.Minute, OperationTimeout: 10 * time.Second,
		ACL: zk.WorldACL(zk.PermAll), Retry: zkutil.Retry{}.WithDefaults(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q := queue.Queue{Session: s, Recipe: "mutex", Dir: "/m", Prefix: "lock-", Markers: queue.Markers, Rule: queue.Exclusive}
	entry, err := q.Acquire(t.Context(), true, nil)
	require.NoError(t, err)
	return entry
}

func settle() {
	time.Sleep(4 * time.Second) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func TestNextMoveOfATenure(t *testing.T) {
	const awaited, alone = true, false
	for name, test := range map[string]struct {
		tenure    tenure
		since     time.Duration // how long a contender of another client waits; 0: none
		free      time.Duration // how long no caller inside holds the lock
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
				srv := zktest.NewServer(t)
				tenure := test.tenure
				tenure.base = holdOn(t, srv)
				tenure.c = &cohort{bounds: Bounds{MaxPasses: 3, MaxTenure: time.Second, Linger: 10 * time.Millisecond}}
				now := time.Now()
				tenure.freeAt = now.Add(-test.free)
				if test.since > 0 {
					tenure.othersSince = now.Add(-test.since)
				}
				require.Equal(t, test.want, tenure.next(now, test.isAwaited))
				settle() // the holder watches its znode
				srv.Put(tenure.base.Path(), []byte(session.Revocation))
				settle()
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
