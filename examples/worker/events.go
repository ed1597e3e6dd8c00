package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Messages of a worker's log, which is standard output with one JSON object per line. The demonstration reads this
// log.
const (
	saysServing = "serving"
	saysLeads   = "leads"
	saysEnds    = "leads no more"
	saysBegins  = "run begins"
	saysRuns    = "run recorded"
	saysFails   = "run failed"
	saysStopped = "stopped"
)

// event is a line of a worker's log.
type event struct {
	Time    time.Time `json:"time"`
	Msg     string    `json:"msg"`
	Worker  string    `json:"worker"`
	URL     string    `json:"url"`
	Token   int64     `json:"token"`
	Run     int64     `json:"run"`
	Outcome string    `json:"outcome"`
	Stale   bool      `json:"stale"`
	Valid   time.Time `json:"valid"` // the end of validity of a term that is over
	Err     string    `json:"err"`
}

// journal collects the events of several workers in the order in which they arrive.
type journal struct {
	mu     sync.Mutex // protects what is below
	events []event
	grown  chan struct{} // closed when there is more
}

func newJournal() *journal { return &journal{grown: make(chan struct{})} }

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	close(j.grown)
	j.grown = make(chan struct{})
}

// all returns the events so far. The slice only grows, and its elements never change.
func (j *journal) all() []event {
	events, _ := j.look()
	return events
}

func (j *journal) look() (events []event, grown <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.events), j.grown
}

// await returns the first event from position from on that matches, and the position after it. It calls match once
// per event.
func (j *journal) await(ctx context.Context, from int, match func(event) bool) (event, int, error) {
	for {
		events, grown := j.look()
		for ; from < len(events); from++ {
			if match(events[from]) {
				return events[from], from + 1, nil
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return event{}, from, context.Cause(ctx)
		}
	}
}

// lines is the writer of a worker's log. It records each complete line that is an event.
type lines struct {
	journal *journal
	rest    []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.rest = rest
		var e event
		if json.Unmarshal(line, &e) == nil && e.Msg != "" {
			l.journal.add(e)
		}
	}
}
