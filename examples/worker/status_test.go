package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

var errDown = errors.New("down for the night")

func thePage() *page {
	now := time.Now()
	return &page{
		every: time.Minute,
		self:  func() (id, path string) { return "bob", "/worker/leader/2" },
		queue: func(context.Context) ([]recipes.Participant, error) {
			return []recipes.Participant{
				{ID: "ann", Path: "/worker/leader/1", Leader: true, Token: 4294967303, Since: now.Add(-5 * time.Minute)},
				{ID: "bob", Path: "/worker/leader/2"},
				{ID: "<cid>", Path: "/worker/leader/3"},
				{Path: "/worker/leader/4"}, // may not be read
				{ID: "bob", Path: "/worker/leader/5"},
			}, nil
		},
		next: func(context.Context) (schedule, error) {
			return schedule{Number: 13, Due: now.Add(42 * time.Second)}, nil
		},
		runs: func(_ context.Context, n int) ([]runRecord, error) {
			return []runRecord{
				{Number: 12, Token: 4294967303, Leader: "ann", Outcome: outcomeDone, Began: now.Add(-65 * time.Second), Took: 300 * time.Millisecond},
				{Number: 11, Token: 4294967301, Leader: "<cid>", Outcome: outcomeStopped, Began: now.Add(-2 * time.Hour), Took: 12 * time.Millisecond},
			}[:min(n, 2)], nil
		},
		led: func(context.Context) (leadership, error) {
			return leadership{Leader: "ann", Token: 4294967303, Since: now.Add(-4 * time.Minute), Handovers: 3, Refused: 1}, nil
		},
		trouble:  func() error { return nil },
		isLeader: func(context.Context) (bool, error) { return false, nil },
	}
}

func fetch(t *testing.T, p *page, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
	return w
}

func TestStatusPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time, because the page shows times of a second
		w := fetch(t, thePage(), "/")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		for _, said := range []string{
			"<title>ann is first in the queue</title>", "<h1>ann is first in the queue</h1>",
			`There for 5m. Its fencing token is <span id="token">4294967303</span>. `,
			"Last run: number 12, 1m5s ago, done. Run 13 is due in 42s. The job runs every 1m.",
			"</time>, for 4m: ann, the last to claim the job, with token 4294967303. Handovers: 3. Stale writes refused: 1.</p>",
			`<li>ann <span class="tag">first</span></li>`, `<li>bob <span class="quiet">this one</span></li>`, `<li>&lt;cid&gt;</li>`,
			`<li>4</li>`, `<li>bob</li>`,
			`<td>12</td><td>ann <small>4294967303</small></td>`, ">1m5s ago</time> <small>300ms</small>", `<span class="tag">done</span>`,
			`<td>11</td><td>&lt;cid&gt; <small>4294967301</small></td>`, ">2h ago</time> <small>12ms</small>", `<span class="tag bad">stopped</span>`,
			"As seen by bob at ", `href="/?refresh=5"`,
		} {
			require.Contains(t, w.Body.String(), said)
		}
		for _, absent := range []string{"http-equiv", "<script", "http://", "https://", "alert", "Nobody", "Overdue", " lead"} {
			require.NotContains(t, w.Body.String(), absent)
		}
	})
}

// A current run is not late yet. A run without a record for longer than runs take is late.
func TestStatusPageShowsALateRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time, because the page shows times of a second
		for late, want := range map[time.Duration]string{
			0:                       "Run 13 is due now.",
			time.Second:             "Run 13 is due now.",
			1500 * time.Millisecond: "<strong>Overdue: run 13 was due 1s ago.</strong>",
			time.Hour:               "<strong>Overdue: run 13 was due 1h ago.</strong>",
		} {
			p := thePage()
			due := time.Now().Add(-late)
			p.next = func(context.Context) (schedule, error) { return schedule{Number: 13, Due: due}, nil }
			body := fetch(t, p, "/").Body.String()
			require.Contains(t, body, want)
			require.Equal(t, strings.Contains(want, "Overdue"), strings.Contains(body, "<title>Overdue: ann is first in the queue</title>"), late)
			require.Equal(t, strings.Contains(want, "Overdue"), strings.Contains(body, `class="first bad"`), late)
		}
	})
}

// The page shows the obstacle that keeps a worker from the election.
func TestStatusPageOfARefusedWorker(t *testing.T) {
	p := thePage()
	p.trouble = func() error { return errDown }
	w := fetch(t, p, "/")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `role="alert">This worker is kept from the election: down for the night</section>`)
}

// The page reloads only on request.
func TestStatusPageRefreshesOnDemand(t *testing.T) {
	for target, want := range map[string]bool{
		"/": false, "/?refresh=2": true, "/?refresh=0": false, "/?refresh=-1": false, "/?refresh=x": false,
	} {
		body := fetch(t, thePage(), target).Body.String()
		require.Equal(t, want, strings.Contains(body, `<meta http-equiv="refresh" content="2">`) && strings.Contains(body, "Stop refreshing"), target)
	}
}

func TestStatusPageWithoutParticipants(t *testing.T) {
	p := thePage()
	p.self, p.trouble = nil, nil
	p.queue = func(context.Context) ([]recipes.Participant, error) { return nil, nil }
	p.next = func(context.Context) (schedule, error) { return schedule{Number: 1}, nil }
	p.runs = func(context.Context, int) ([]runRecord, error) { return nil, nil }
	p.led = func(context.Context) (leadership, error) { return leadership{}, nil }
	w := fetch(t, p, "/")
	require.Equal(t, http.StatusOK, w.Code)
	for _, said := range []string{
		"<h1>Nobody is in the queue</h1>", "Nobody takes part.", "None yet.", "No run yet. Run 1 is due now.", "an onlooker, who takes no part,",
	} {
		require.Contains(t, w.Body.String(), said)
	}
	require.NotContains(t, w.Body.String(), "alert")
	require.NotContains(t, w.Body.String(), "Leader since")
}

// The page shows available data, and names missing data.
func TestStatusPageInTrouble(t *testing.T) {
	p := thePage()
	p.queue = func(context.Context) ([]recipes.Participant, error) { return nil, errDown }
	w := fetch(t, p, "/")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `role="alert">ZooKeeper does not answer: down for the night</section>`)
	require.Contains(t, w.Body.String(), "<td>12</td>")

	p.next = func(context.Context) (schedule, error) { return schedule{}, errDown }
	w = fetch(t, p, "/")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "The database does not answer: down for the night")
	require.NotContains(t, w.Body.String(), "due")
}

func TestLeaderEndpoint(t *testing.T) {
	for _, tt := range []struct {
		leads  bool
		err    error
		status int
		body   string
	}{
		{true, nil, http.StatusOK, "leader\n"},
		{false, nil, http.StatusServiceUnavailable, "not the leader\n"},
		{false, context.DeadlineExceeded, http.StatusServiceUnavailable, "not decided yet\n"},
	} {
		p := thePage()
		p.isLeader = func(context.Context) (bool, error) { return tt.leads, tt.err }
		w := fetch(t, p, "/leader")
		require.Equal(t, tt.status, w.Code)
		require.Equal(t, tt.body, w.Body.String())
	}
	onlooker := thePage()
	onlooker.isLeader = nil
	require.Equal(t, http.StatusNotFound, fetch(t, onlooker, "/leader").Code)
	require.Equal(t, http.StatusNotFound, fetch(t, thePage(), "/else").Code)
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
		time.Hour: "1h", 100 * time.Minute: "1h40m", time.Hour + time.Second: "1h0m1s", 300 * time.Millisecond: "300ms",
	} {
		require.Equal(t, want, short(d))
	}
}

// Every worker shows the same data, from ZooKeeper and the database.
func TestStatusPageOfALiveElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		bob := c.join("bob", waiting(0))
		c.await("ann", saysRuns)
		lease, _ := ann.latch.Leadership()
		for _, m := range []*member{ann, bob} {
			s := c.look(m.worker)
			require.Empty(t, s.Trouble)
			require.Equal(t, m.latch.Path(), s.Path)
			require.Len(t, s.Queue, 2)
			require.Equal(t, "ann", s.First().ID)
			require.Equal(t, lease.FencingToken(), s.First().Token)
			require.Equal(t, "bob", s.Queue[1].ID)
			require.Len(t, s.Runs, 1)
			require.Equal(t, s.First().Token, s.Last().Token)
			require.Equal(t, s.Runs[0].Due.Add(time.Minute), s.Next.Due)
			require.False(t, s.Overdue)
		}
	})
}

// Until the session of a dead leader expires, its znode is the first. The page says that its run is overdue.
func TestStatusPageAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		bob := c.join("bob", waiting(0))
		c.await("ann", saysRuns)
		time.Sleep(36 * time.Second) //nolint:forbidigo // virtual time
		c.cut(ann)
		time.Sleep(26 * time.Second) //nolint:forbidigo // virtual time
		s := c.look(bob.worker)
		require.Equal(t, "ann", s.First().ID)
		require.True(t, s.Overdue)
		c.await("bob", saysRuns)
		s = c.look(bob.worker)
		require.Equal(t, "bob", s.First().ID)
		require.False(t, s.Overdue)
		c.server.Heal()
	})
}
