package main

import (
	"context"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// get asks a worker itself, in its own process.
func (c *cluster) get(m *member, target string) (status int, body string) {
	c.t.Helper()
	w := fetch(c.t, m.page(), target)
	return w.Code, w.Body.String()
}

// The scrape of a Prometheus before and after a leader that worked for too long.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var once sync.Once
		ann := c.join("ann", func(context.Context) error {
			once.Do(func() { time.Sleep(2 * session) }) //nolint:forbidigo // virtual time
			return nil
		})
		bob := c.join("bob", waiting(time.Second))
		c.await("ann", saysBegins)
		requireSeries(c, ann, `zkrecipes_election_leader{`, ` 1`)
		requireSeries(c, ann, `zkrecipes_session_state{`, ` 0`)
		requireSeries(c, ann, `worker_stale_writes_total{`, ` 0`)
		requireSeries(c, bob, `zkrecipes_election_leader{`, ` 0`)
		requireSeries(c, bob, `zkrecipes_lock_pending_requests{`, ` 1`)

		c.cut(ann)
		c.await("ann", saysFails)
		c.await("ann", saysEnds)
		requireSeries(c, ann, `worker_stale_writes_total{`, ` 1`)
		requireSeries(c, ann, `zkrecipes_lock_lost_total{error_type="session_lost",`, ` 1`)
		requireSeries(c, bob, `zkrecipes_election_leader{`, ` 1`)
		requireSeries(c, bob, `worker_stale_writes_total{`, ` 0`)
		c.server.Heal()
		for _, m := range []*member{ann, bob} { // the page is the same everywhere
			led := c.look(m.worker).Led
			require.Equal(t, "bob", led.Leader)
			require.Equal(t, c.await("bob", saysLeads).Token, led.Token)
			require.Equal(t, c.await("bob", saysLeads).Time.UnixMilli(), led.Since.UnixMilli())
			require.Equal(t, int64(1), led.Handovers)
			require.Equal(t, int64(1), led.Refused)
		}
	})
}

// requireSeries finds a line of /metrics that begins and ends so.
func requireSeries(c *cluster, m *member, begin, end string) {
	c.t.Helper()
	status, body := c.get(m, "/metrics")
	require.Equal(c.t, http.StatusOK, status)
	require.Regexp(c.t, `(?m)^`+regexp.QuoteMeta(begin)+`.*`+regexp.QuoteMeta(end)+`$`, body)
}

// A lost connection counts as ready for a third of the session timeout, a lost session does not.
func TestHealthz(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		bob := c.join("bob", waiting(0))
		for _, m := range []*member{ann, bob} { // whether it leads or not
			status, body := c.get(m, "/healthz")
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "ready\n", body)
		}
		c.server.Isolate()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		c.server.Disconnect()
		time.Sleep(session / 4) //nolint:forbidigo // virtual time
		status, _ := c.get(ann, "/healthz")
		require.Equal(t, http.StatusOK, status)
		time.Sleep(session) //nolint:forbidigo // virtual time
		status, body := c.get(ann, "/healthz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Regexp(t, `^lost for .*: .+\n$`, body)
		c.server.Heal()
		time.Sleep(session) //nolint:forbidigo // virtual time
		status, _ = c.get(ann, "/healthz")
		require.Equal(t, http.StatusOK, status)
	})
	onlooker := thePage()
	require.Equal(t, http.StatusNotFound, fetch(t, onlooker, "/healthz").Code)
	require.Equal(t, http.StatusNotFound, fetch(t, onlooker, "/metrics").Code)
}
