package promzkrecipes

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/internal/telemetry"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Labels, as OpenTelemetry's exporter has them.
const (
	recipeLabel    = "zkrecipes_recipe"
	nameLabel      = "zkrecipes_lock_name"
	outcomeLabel   = "zkrecipes_outcome"
	errorTypeLabel = "error_type"
	serverLabel    = "server_address"
)

// Collector has the metrics. Its trace records events. Register it with a [prometheus.Registerer].
type Collector struct {
	waitTime, holdTime      *prometheus.HistogramVec
	count, pending, leader  *prometheus.GaugeVec
	lost, transitions       *prometheus.CounterVec
	expirations, reconnects *prometheus.CounterVec
	state, proofAge         *prometheus.Desc
	collectors              []prometheus.Collector // those above with labels
	knownLocks              sync.Map               // by lockKey; locks with initialized counters

	mu      sync.Mutex // protects clients
	clients map[*observed]struct{}
}

var _ prometheus.Collector = (*Collector)(nil)

// New creates the metrics.
func New() *Collector {
	c := &Collector{clients: map[*observed]struct{}{}}
	lock := []string{recipeLabel, nameLabel}
	c.waitTime = c.histogram("zkrecipes_lock_wait_time_seconds", "How long an acquisition took, whatever its outcome.", recipeLabel, nameLabel, outcomeLabel, errorTypeLabel)
	c.holdTime = c.histogram("zkrecipes_lock_hold_time_seconds", "How long a lease was held.", recipeLabel, nameLabel, outcomeLabel, errorTypeLabel)
	c.count = c.gauge("zkrecipes_lock_count", "Leases that are held now.", lock...)
	c.pending = c.gauge("zkrecipes_lock_pending_requests", "Acquisitions that wait now.", lock...)
	c.leader = c.gauge("zkrecipes_election_leader", "1 while this process leads, else 0.", lock...)
	c.lost = c.counter("zkrecipes_lock_lost_total", "Leases that ended by a loss.", recipeLabel, nameLabel, errorTypeLabel)
	c.transitions = c.counter("zkrecipes_election_transitions_total", "Terms of leadership that began in this process.", lock...)
	c.expirations = c.counter("zkrecipes_session_expirations_total", "Sessions that were lost.", serverLabel)
	c.reconnects = c.counter("zkrecipes_session_reconnects_total", "Connections that were lost and replaced, by the server that was lost.", serverLabel)
	c.state = prometheus.NewDesc("zkrecipes_session_state", "0 connected, 1 suspended, 2 lost, 3 closed.", []string{serverLabel}, nil)
	c.proofAge = prometheus.NewDesc("zkrecipes_session_proof_age_seconds", "Time since the session was last proven alive.", []string{serverLabel}, nil)
	return c
}

func (c *Collector) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: telemetry.Buckets()}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

func (c *Collector) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

func (c *Collector) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

// Describe is for the registry.
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, collector := range c.collectors {
		collector.Describe(descriptions)
	}
	descriptions <- c.state
	descriptions <- c.proofAge
}

// Collect is for the registry.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, collector := range c.collectors {
		collector.Collect(metrics)
	}
	c.collectSessions(metrics)
}

// Trace returns the hooks for [recipes.WithTrace]. Any number of clients may share them.
func (c *Collector) Trace() *recipes.Trace {
	return &recipes.Trace{AcquireStart: c.acquireStart, AcquireEnd: c.acquireEnd, LeaseEnd: c.leaseEnd, StateChange: c.stateChange}
}

// lockKey is what distinguishes locks.
type lockKey struct{ recipe, name string }

// acquisition is passed with the context from AcquireStart to AcquireEnd and LeaseEnd.
type acquisition struct {
	lockKey

	isReentrant bool // set at the end of the acquisition, before its lease can end
}

type acquisitionKey struct{}

func (c *Collector) acquireStart(ctx context.Context, start recipes.AcquireStart) context.Context {
	lock := lockKey{start.Recipe, start.Name}
	c.startCounters(lock)
	c.pending.WithLabelValues(lock.recipe, lock.name).Inc()
	return context.WithValue(ctx, acquisitionKey{}, &acquisition{lockKey: lock})
}

// startCounters initializes a lock's counters with 0, because readers can't see the first increase of a counter
// without an earlier value.
func (c *Collector) startCounters(lock lockKey) {
	if _, isKnown := c.knownLocks.LoadOrStore(lock, true); isKnown {
		return
	}
	for _, loss := range telemetry.Losses() {
		c.lost.WithLabelValues(lock.recipe, lock.name, loss)
	}
	c.count.WithLabelValues(lock.recipe, lock.name)
	if telemetry.IsElection(lock.recipe) {
		c.leader.WithLabelValues(lock.recipe, lock.name)
		c.transitions.WithLabelValues(lock.recipe, lock.name)
	}
}

func (c *Collector) acquireEnd(ctx context.Context, end recipes.AcquireEnd) {
	a, ok := ctx.Value(acquisitionKey{}).(*acquisition)
	if !ok {
		return
	}
	a.isReentrant = end.Reentrant
	c.pending.WithLabelValues(a.recipe, a.name).Dec()
	if end.Reentrant {
		return
	}
	failure := ""
	if end.Err != nil {
		failure = telemetry.ErrorType(end.Err)
	}
	c.waitTime.WithLabelValues(a.recipe, a.name, telemetry.OutcomeOf(end.Err), failure).Observe(end.Waited.Seconds())
	if end.Err == nil {
		c.addHeld(a.lockKey, telemetry.Leases(end.Permits))
	}
}

func (c *Collector) leaseEnd(ctx context.Context, end recipes.LeaseEnd) {
	a, ok := ctx.Value(acquisitionKey{}).(*acquisition)
	if !ok || a.isReentrant {
		return
	}
	c.addHeld(a.lockKey, -telemetry.Leases(end.Permits))
	outcome, failure := telemetry.OutcomeOfLease(end.Cause), ""
	if outcome == telemetry.OutcomeLost {
		failure = telemetry.ErrorType(end.Cause)
		c.lost.WithLabelValues(a.recipe, a.name, failure).Inc()
	}
	c.holdTime.WithLabelValues(a.recipe, a.name, outcome, failure).Observe(end.Held.Seconds())
}

// addHeld counts leases that begin or end.
func (c *Collector) addHeld(lock lockKey, n int64) {
	c.count.WithLabelValues(lock.recipe, lock.name).Add(float64(n))
	if !telemetry.IsElection(lock.recipe) {
		return
	}
	c.leader.WithLabelValues(lock.recipe, lock.name).Add(float64(n))
	if n > 0 {
		c.transitions.WithLabelValues(lock.recipe, lock.name).Add(float64(n))
	}
}
