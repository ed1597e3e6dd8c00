package otelzkrecipes

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/internal/telemetry"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	recipeKey    = attribute.Key("zkrecipes.recipe")
	nameKey      = attribute.Key("zkrecipes.lock.name")
	outcomeKey   = attribute.Key("zkrecipes.outcome")
	errorTypeKey = attribute.Key("error.type")
	serverKey    = attribute.Key("server.address")
	tryKey       = attribute.Key("zkrecipes.try")       // of spans
	reentrantKey = attribute.Key("zkrecipes.reentrant") // of spans
	aheadKey     = attribute.Key("zkrecipes.ahead")     // of spans
)

// lockKey is what distinguishes locks in metrics.
type lockKey struct{ recipe, name string }

// lock has the attributes of one name, built once.
type lock struct {
	attributes []attribute.KeyValue
	set        metric.MeasurementOption // attributes as a set
	isElection bool
	spanName   string
}

// lock returns the attributes of a name. At the first call its counters start at 0.
func (t *Telemetry) lock(ctx context.Context, key lockKey) *lock {
	if found, ok := t.locks.Load(key); ok {
		return found.(*lock) //nolint:forcetypeassert // the map has nothing else
	}
	l := &lock{
		attributes: []attribute.KeyValue{recipeKey.String(key.recipe)},
		isElection: telemetry.IsElection(key.recipe),
		spanName:   "acquire",
	}
	if key.name != "" {
		l.attributes = append(l.attributes, nameKey.String(key.name))
		l.spanName += " " + key.name
	}
	l.set = l.with()
	found, isKnown := t.locks.LoadOrStore(key, l)
	if !isKnown {
		t.startCounters(ctx, l)
	}
	return found.(*lock) //nolint:forcetypeassert // the map has nothing else
}

// startCounters initializes a lock's counters with 0, because readers can't see the first increase of a counter
// without an earlier value.
func (t *Telemetry) startCounters(ctx context.Context, l *lock) {
	for _, loss := range telemetry.Losses() {
		t.metrics.lost.Add(ctx, 0, l.with(errorTypeKey.String(loss)))
	}
	t.metrics.count.Add(ctx, 0, l.set)
	if l.isElection {
		t.metrics.leader.Add(ctx, 0, l.set)
		t.metrics.transitions.Add(ctx, 0, l.set)
	}
}

// with returns the attributes of the lock, and more.
func (l *lock) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(slices.Concat(l.attributes, more)...)
}

// acquisition is passed with the context from AcquireStart to AcquireEnd and LeaseEnd.
type acquisition struct {
	*lock
	isReentrant bool // set at the end of the acquisition, before its lease can end
}

type acquisitionKey struct{}

func (t *Telemetry) acquireStart(ctx context.Context, start recipes.AcquireStart) context.Context {
	l := t.lock(ctx, lockKey{start.Recipe, start.Name})
	ctx, _ = t.tracer.Start(ctx, l.spanName, trace.WithAttributes(l.attributes...), trace.WithAttributes(tryKey.Bool(start.Try)))
	t.metrics.pendingRequests.Add(ctx, 1, l.set)
	return context.WithValue(ctx, acquisitionKey{}, &acquisition{lock: l})
}

func (t *Telemetry) acquireEnd(ctx context.Context, end recipes.AcquireEnd) {
	a, ok := ctx.Value(acquisitionKey{}).(*acquisition)
	if !ok {
		return
	}
	a.isReentrant = end.Reentrant
	t.metrics.pendingRequests.Add(ctx, -1, a.set)
	outcome := telemetry.OutcomeOf(end.Err)
	result := []attribute.KeyValue{outcomeKey.String(outcome)}
	if end.Err != nil {
		result = append(result, errorTypeKey.String(telemetry.ErrorType(end.Err)))
	}
	if !end.Reentrant {
		t.metrics.waitTime.Record(ctx, end.Waited.Seconds(), a.with(result...))
		if end.Err == nil {
			t.addHeld(ctx, a.lock, telemetry.Leases(end.Permits))
		}
	}
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(append(result, reentrantKey.Bool(end.Reentrant), aheadKey.Int(end.Ahead))...)
	if outcome == telemetry.OutcomeTimeout || outcome == telemetry.OutcomeError {
		span.SetStatus(codes.Error, telemetry.ErrorType(end.Err)) // not the text, which has the path
	}
	span.End()
}

func (t *Telemetry) leaseEnd(ctx context.Context, end recipes.LeaseEnd) {
	a, ok := ctx.Value(acquisitionKey{}).(*acquisition)
	if !ok || a.isReentrant {
		return
	}
	t.addHeld(ctx, a.lock, -telemetry.Leases(end.Permits))
	outcome := telemetry.OutcomeOfLease(end.Cause)
	result := []attribute.KeyValue{outcomeKey.String(outcome)}
	if outcome == telemetry.OutcomeLost {
		cause := errorTypeKey.String(telemetry.ErrorType(end.Cause))
		t.metrics.lost.Add(ctx, 1, a.with(cause))
		result = append(result, cause)
	}
	t.metrics.holdTime.Record(ctx, end.Held.Round(time.Microsecond).Seconds(), a.with(result...))
}

// addHeld counts leases that begin or end.
func (t *Telemetry) addHeld(ctx context.Context, l *lock, n int64) {
	t.metrics.count.Add(ctx, n, l.set)
	if !l.isElection {
		return
	}
	t.metrics.leader.Add(ctx, n, l.set)
	if n > 0 {
		t.metrics.transitions.Add(ctx, n, l.set)
	}
}
