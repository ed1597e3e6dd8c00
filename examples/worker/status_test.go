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
	return &page{
		self: "bob", every: time.Minute,
		queue: func(context.Context) (queue, error) {
			return queue{token: 4294967303, participants: []recipes.Participant{
				{ID: "ann", Path: "/worker/leader/1", Leader: true}, {ID: "bob", Path: "/worker/leader/2"}, {ID: "<cid>", Path: "/worker/leader/3"},
			}}, nil
		},
		runs: func(_ context.Context, n int) ([]runRecord, error) {
			now := time.Now()
			return []runRecord{
				{Number: 12, Token: 4294967303, Leader: "ann", Outcome: outcomeDone, Began: now.Add(-65 * time.Second), Took: 300 * time.Millisecond},
				{Number: 11, Token: 4294967301, Leader: "<cid>", Outcome: outcomeStopped, Began: now.Add(-2 * time.Hour), Took: 12 * time.Millisecond},
			}[:min(n, 2)], nil
		},
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
	w := fetch(t, thePage(), "/")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	for _, said := range []string{
		"<title>ann leads</title>", "<h1>ann leads</h1>", `<span id="token">4294967303</span>. The job runs every 1m.`,
		`<li>ann <span class="tag">leads</span></li>`, `<li>bob <span class="quiet">this one</span></li>`, `<li>&lt;cid&gt;</li>`,
		`<td>12</td><td>ann <small>4294967303</small></td>`, ">1m5s ago</time> <small>300ms</small>", `<span class="tag">done</span>`,
		`<td>11</td><td>&lt;cid&gt; <small>4294967301</small></td>`, ">2h ago</time> <small>12ms</small>", `<span class="tag bad">stopped</span>`,
		"As seen by bob at ", `href="/?refresh=5"`,
	} {
		require.Contains(t, w.Body.String(), said)
	}
	for _, absent := range []string{"http-equiv", "<script", "http://", "https://", "alert", "Nobody"} {
		require.NotContains(t, w.Body.String(), absent)
	}
}

// Nobody's page moves under his eyes unless he has asked for it.
func TestStatusPageRefreshesOnDemand(t *testing.T) {
	for target, want := range map[string]bool{
		"/": false, "/?refresh=2": true, "/?refresh=0": false, "/?refresh=-1": false, "/?refresh=x": false,
	} {
		body := fetch(t, thePage(), target).Body.String()
		require.Equal(t, want, strings.Contains(body, `<meta http-equiv="refresh" content="2">`) && strings.Contains(body, "Stop refreshing"), target)
	}
}

func TestStatusPageWithoutLeader(t *testing.T) {
	p := thePage()
	p.self = ""
	p.queue = func(context.Context) (queue, error) { return queue{}, nil }
	p.runs = func(context.Context, int) ([]runRecord, error) { return nil, nil }
	w := fetch(t, p, "/")
	require.Equal(t, http.StatusOK, w.Code)
	for _, said := range []string{"<h1>Nobody leads</h1>", "Nobody takes part.", "None yet.", "an onlooker, who takes no part,"} {
		require.Contains(t, w.Body.String(), said)
	}
	require.NotContains(t, w.Body.String(), "alert")
}

// What is known is shown, and what is not is said.
func TestStatusPageInTrouble(t *testing.T) {
	p := thePage()
	p.queue = func(context.Context) (queue, error) { return queue{}, errDown }
	w := fetch(t, p, "/")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `role="alert">ZooKeeper does not answer: down for the night</section>`)
	require.Contains(t, w.Body.String(), "<td>12</td>")

	p.runs = func(context.Context, int) ([]runRecord, error) { return nil, errDown }
	w = fetch(t, p, "/")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "The database does not answer: down for the night")
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

// The page is about what is in ZooKeeper and in the database, whoever is asked.
func TestStatusPageOfALiveElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		bob := c.join("bob", waiting(0))
		c.await("ann", saysRuns)
		lease, _ := ann.latch.Leadership()
		for _, m := range []*member{ann, bob} {
			p := &page{self: m.id, every: m.every, runs: c.store.lastRuns, queue: queueOf(m.client, m.latch), isLeader: m.isLeader}
			s := p.look(t.Context())
			require.Empty(t, s.Trouble)
			require.Equal(t, "ann", s.Leader)
			require.Equal(t, lease.FencingToken(), s.Token)
			require.Len(t, s.Queue, 2)
			require.Equal(t, "bob", s.Queue[1].ID)
			require.Len(t, s.Runs, 1)
			require.Equal(t, s.Token, s.Runs[0].Token)
		}
	})
}
