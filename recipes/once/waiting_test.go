package once_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A waiting Do reads the record, its own znode and the one ahead once per session timeout, as every waiter reads what it
// watches. It lists the queue and commits an audit far less often. The number of requests does not depend on the length of
// the run.
func TestRequestsOfAnHourOfWaiting(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder, _ := f.host("web-1", 0)
		client, o := f.host("web-2", 1)
		m, err := mutex.New(holder, jobs)
		require.NoError(f, err)
		_, err = m.Acquire(f.Context())
		require.NoError(f, err)
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error)
		go func() { ended <- o.Do(ctx, tick, (&counter{}).run) }()
		pass(time.Minute)
		log := f.srv.Observe()
		pass(time.Hour)
		counts := map[zktest.Op]int{}
		for _, r := range log.Requests() {
			if r.Session == client.Conn().SessionID() {
				counts[r.Op]++
			}
		}
		log.Stop()
		timeouts := int(time.Hour / testclient.SessionTimeout)
		for op, perTimeout := range map[zktest.Op]float64{zktest.OpGetData: 3.3, zktest.OpGetChildren2: 0.25, zktest.OpMulti: 0.05} {
			require.LessOrEqual(f, counts[op], int(perTimeout*float64(timeouts)), "%v", op)
			delete(counts, op)
		}
		require.Empty(f, counts)
		cancel()
		require.ErrorIs(f, <-ended, context.Canceled)
	})
}

// A Do that starts in an outage waits for a server before it can read the record. Its log says so once a minute.
func TestLogOfAWaitThatBeginsInAnOutage(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log testkit.Log
		o := f.loggedHost("web-1", &log)
		f.srv.Stop(f.srv.Addrs()...)
		ctx, cancel := context.WithTimeout(f.Context(), 15*time.Minute)
		defer cancel()
		require.ErrorIs(f, o.Do(ctx, tick, (&counter{}).run), context.DeadlineExceeded)
		require.InDelta(f, 15, strings.Count(log.String(), `msg="slow wait" path=`+jobs+" waited="), 3)
		require.NotContains(f, log.String(), "position=")
	})
}
