package main

import (
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

const (
	shownRuns = 8
	patience  = 3 * time.Second // with ZooKeeper and the database, for one request
)

// queue is who takes part in the election, the leader first, and the leader's token.
type queue struct {
	participants []recipes.Participant
	token        int64
}

// queueOf asks ZooKeeper, so that every process shows the same, whether it leads,
// waits, or only looks on with a latch that was never started. A term's token is the czxid
// of its znode, which everybody may read.
func queueOf(client *recipes.Client, election *latch.LeaderLatch) func(context.Context) (queue, error) {
	return func(ctx context.Context) (q queue, err error) {
		q.participants, err = election.Participants(ctx)
		if err != nil || len(q.participants) == 0 {
			return q, err
		}
		found, stat, err := client.Conn().Exists(q.participants[0].Path)
		if err != nil {
			return q, err
		}
		if found {
			q.token = stat.Czxid
		}
		return q, nil
	}
}

// page shows the election and the runs. It has no state of its own.
type page struct {
	self     string // the participant whose page it is
	every    time.Duration
	queue    func(context.Context) (queue, error)
	runs     func(ctx context.Context, n int) ([]runRecord, error)
	isLeader func(context.Context) (bool, error) // nil: it takes no part
}

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.serveStatus)
	if p.isLeader != nil {
		mux.HandleFunc("GET /leader", p.serveLeader)
	}
	return mux
}

// serveLeader is for a load balancer that sends requests to the leader: 200 if this
// worker leads, 503 if not. Just after the start it waits for the election's first decision.
func (p *page) serveLeader(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	leads, err := p.isLeader(ctx)
	switch {
	case err != nil:
		http.Error(w, "not decided yet", http.StatusServiceUnavailable)
	case leads:
		_, _ = w.Write([]byte("leader\n"))
	default:
		http.Error(w, "not the leader", http.StatusServiceUnavailable)
	}
}

// status is what the template gets.
type status struct {
	Self    string
	Every   time.Duration
	Now     time.Time
	Refresh int // in seconds; 0: the page stays as it is

	Leader  string // "" if nobody leads
	Token   int64  // 0 if it has gone in that moment
	Queue   []recipes.Participant
	Runs    []runRecord
	Trouble []string
}

//go:embed status.html
var statusHTML string

var statusPage = template.Must(template.New("status").Funcs(template.FuncMap{ //nolint:gochecknoglobals // parsed once
	"ago":   func(now, then time.Time) string { return short(max(0, now.Sub(then)).Truncate(time.Second)) },
	"short": short,
}).Parse(statusHTML))

// short says "1m" for a minute, where the standard library says "1m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// serveStatus answers 200 as long as there is anything to show, and 503 if neither
// ZooKeeper nor the database answers. ?refresh=5 makes the browser load it again every 5 s.
func (p *page) serveStatus(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	s := p.look(ctx)
	s.Refresh, _ = strconv.Atoi(r.URL.Query().Get("refresh"))

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if len(s.Trouble) > 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = statusPage.Execute(w, s) // the reader has gone away; nobody to tell
}

// look asks ZooKeeper and the database. What one of them does not tell is missing, and
// the page says why.
func (p *page) look(ctx context.Context) status {
	s := status{Self: p.self, Every: p.every}
	q, err := p.queue(ctx)
	if err != nil {
		s.Trouble = append(s.Trouble, "ZooKeeper does not answer: "+err.Error())
	}
	s.Queue, s.Token = q.participants, q.token
	if len(s.Queue) > 0 {
		s.Leader = s.Queue[0].ID
	}
	s.Runs, err = p.runs(ctx, shownRuns)
	if err != nil {
		s.Trouble = append(s.Trouble, "The database does not answer: "+err.Error())
	}
	s.Now = time.Now()
	return s
}
