package main

import (
	"cmp"
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"path"
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

// page shows the election and the runs. It has no state: all data is from ZooKeeper and the database, so every
// process shows the same, whether it leads, waits, or only observes with a latch that was never started.
type page struct {
	every    time.Duration
	queue    func(context.Context) ([]recipes.Participant, error)
	next     func(context.Context) (schedule, error)
	runs     func(ctx context.Context, n int) ([]runRecord, error)
	led      func(context.Context) (leadership, error)
	self     func() (id, path string)            // the participant that serves the page; nil: an onlooker
	trouble  func() error                        // the obstacle to its taking part; nil: an onlooker
	isLeader func(context.Context) (bool, error) // nil: it takes no part
	health   func() recipes.Health               // nil: it takes no part
	metrics  http.Handler                        // nil: none
}

// onlookerPage is the page of an onlooker, whose election was never started.
func onlookerPage(s *store, election *latch.LeaderLatch, every time.Duration) *page {
	return &page{every: every, queue: election.Participants, next: s.schedule, runs: s.lastRuns, led: s.leadership}
}

// page is the page of a worker that takes part in the election.
func (w *worker) page() *page {
	p := onlookerPage(w.store, w.latch, w.every)
	p.self = func() (id, path string) { return w.latch.ID(), w.latch.Path() }
	p.trouble, p.isLeader, p.health = w.latch.Err, w.isLeader, w.client.Health
	if w.telemetry != nil {
		p.metrics = w.telemetry.handler
	}
	return p
}

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.serveStatus)
	if p.isLeader != nil {
		mux.HandleFunc("GET /leader", p.serveLeader)
	}
	if p.health != nil {
		mux.HandleFunc("GET /healthz", p.serveHealth)
	}
	if p.metrics != nil {
		mux.Handle("GET /metrics", p.metrics)
	}
	return mux
}

// serveLeader is for a load balancer that sends requests to the leader: 200 if this worker leads, otherwise 503.
// Right after the start it waits for the first decision of the election.
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
	Self    string // "" if it takes no part
	Path    string // of its znode; "" without a znode
	Every   time.Duration
	Now     time.Time
	Refresh int // in seconds; 0: no refresh

	Queue   []recipes.Participant
	Next    schedule
	Overdue bool // the next run is late
	Led     leadership
	Runs    []runRecord
	Trouble []string
}

// First returns the first participant in the queue, or nil without any. Only that process knows whether it leads: it
// may be dead, and keep its znode until its session expires.
func (s status) First() *recipes.Participant {
	if len(s.Queue) == 0 {
		return nil
	}
	return &s.Queue[0]
}

// Last is the last run, nil if there was none.
func (s status) Last() *runRecord {
	if len(s.Runs) == 0 {
		return nil
	}
	return &s.Runs[0]
}

// overdueAfter is the delay after which an unrecorded run counts as late: the longest of the last runs, because the
// current one may take as long, and a second.
func overdueAfter(runs []runRecord) time.Duration {
	longest := time.Duration(0)
	for _, r := range runs {
		longest = max(longest, r.Took)
	}
	return longest + time.Second
}

//go:embed status.html
var statusHTML string

var statusPage = template.Must(template.New("status").Funcs(template.FuncMap{ //nolint:gochecknoglobals // parsed once
	"ago":   func(now, then time.Time) string { return short(max(0, now.Sub(then)).Truncate(time.Second)) },
	"in":    func(now, then time.Time) string { return short(max(0, then.Sub(now)).Round(time.Second)) },
	"name":  name,
	"short": short,
}).Parse(statusHTML))

// name is the participant's id. One whose znode may not be read shows the znode's name.
func name(p recipes.Participant) string {
	return cmp.Or(p.ID, path.Base(p.Path))
}

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
	s, known := p.look(ctx)
	s.Refresh, _ = strconv.Atoi(r.URL.Query().Get("refresh"))

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if !known {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = statusPage.Execute(w, s) // the reader may be disconnected
}

// look asks ZooKeeper and the database, and reports whether either answered. Without an answer, the data is missing
// and the page says why.
func (p *page) look(ctx context.Context) (s status, known bool) {
	s.Every = p.every
	if p.self != nil {
		s.Self, s.Path = p.self()
	}
	if p.trouble != nil {
		if err := p.trouble(); err != nil {
			s.Trouble = append(s.Trouble, "This worker is kept from the election: "+err.Error())
		}
	}
	var queueErr, storeErr error
	if s.Queue, queueErr = p.queue(ctx); queueErr != nil {
		s.Trouble = append(s.Trouble, "ZooKeeper does not answer: "+queueErr.Error())
	}
	if s.Next, storeErr = p.next(ctx); storeErr == nil {
		s.Runs, storeErr = p.runs(ctx, shownRuns)
	}
	if storeErr == nil {
		s.Led, storeErr = p.led(ctx)
	}
	if storeErr != nil {
		s.Trouble = append(s.Trouble, "The database does not answer: "+storeErr.Error())
	}
	s.Now = time.Now()
	s.Overdue = !s.Next.Due.IsZero() && s.Now.Sub(s.Next.Due) > overdueAfter(s.Runs)
	return s, queueErr == nil || storeErr == nil
}
