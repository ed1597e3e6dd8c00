package faultproxy

import (
	"slices"
	"sync"
)

// unlimited is the number of a rule that never ends by itself.
const unlimited = -1

// Rule is a hook or a fault that waits for its requests. It acts on the request or on its reply.
type Rule struct {
	match Match
	n     int
	// Exactly one of the two is set. done is closed at the end of the connection.
	onRequest func(r Request, done <-chan struct{}) verdict
	onReply   func(r Request, reply Reply, done <-chan struct{}) verdict
	spent     chan struct{}

	mu      sync.Mutex
	taken   int  // guarded by mu; requests that the rule acts on
	hits    int  // guarded by mu; finished actions
	settled int  // guarded by mu; those of which the consequences are done too
	ended   bool // guarded by mu
}

// verdict is what becomes of a frame.
type verdict int

const (
	forward verdict = iota
	drop            // and the connection with it
)

// Hits returns the number of requests or replies that the rule acted on.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

// Done is closed after the rule's last action. If the rule cuts connections, the last one is cut by then.
func (r *Rule) Done() <-chan struct{} { return r.spent }

// Remove ends the rule. It takes no further request, and still acts on the reply to one taken before.
func (r *Rule) Remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// take reports whether the rule takes this request.
func (r *Rule) take(request Request) bool {
	// The matcher is the test's code: it does not run under the lock.
	if !r.match(request) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.taken == r.n {
		return false
	}
	r.taken++
	return true
}

// giveBack undoes take, because the connection ended before the reply.
func (r *Rule) giveBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
}

// hit counts an action before the client can notice it, so that a test that saw the fault finds it counted.
func (r *Rule) hit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hits++
}

// settle follows hit once nothing remains to be done, and closes Done after the last.
func (r *Rule) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled++
	if r.settled == r.n {
		close(r.spent)
	}
}

// rules is a list in the order in which the rules were made.
type rules struct {
	mu   sync.Mutex
	list []*Rule // guarded by mu
}

func (rs *rules) add(r *Rule) *Rule {
	r.spent = make(chan struct{})
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = append(rs.list, r)
	return r
}

func (rs *rules) all() []*Rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Clone(rs.list)
}
