package otelzkrecipes

import (
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/zkrecipes/zkrecipes/internal/telemetry"
)

// instruments are all metrics of this package.
type instruments struct {
	waitTime        metric.Float64Histogram
	holdTime        metric.Float64Histogram
	count           metric.Int64UpDownCounter
	pendingRequests metric.Int64UpDownCounter
	lost            metric.Int64Counter
	leader          metric.Int64UpDownCounter
	transitions     metric.Int64Counter
	expirations     metric.Int64Counter
	reconnects      metric.Int64Counter
	state           metric.Int64ObservableGauge
	proofAge        metric.Float64ObservableGauge
}

func buckets() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(telemetry.Buckets()...)
}

func (m *instruments) create(meter metric.Meter) error {
	var errs [11]error
	m.waitTime, errs[0] = meter.Float64Histogram("zkrecipes.lock.wait_time", metric.WithUnit("s"), buckets(),
		metric.WithDescription("How long an acquisition took, whatever its outcome."))
	m.holdTime, errs[1] = meter.Float64Histogram("zkrecipes.lock.hold_time", metric.WithUnit("s"), buckets(),
		metric.WithDescription("How long a lease was held."))
	m.count, errs[2] = meter.Int64UpDownCounter("zkrecipes.lock.count", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that are held now."))
	m.pendingRequests, errs[3] = meter.Int64UpDownCounter("zkrecipes.lock.pending_requests", metric.WithUnit("{request}"),
		metric.WithDescription("Acquisitions that wait now."))
	m.lost, errs[4] = meter.Int64Counter("zkrecipes.lock.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended by a loss."))
	m.leader, errs[5] = meter.Int64UpDownCounter("zkrecipes.election.leader", metric.WithUnit("{leader}"),
		metric.WithDescription("1 while this process leads, else 0."))
	m.transitions, errs[6] = meter.Int64Counter("zkrecipes.election.transitions", metric.WithUnit("{term}"),
		metric.WithDescription("Terms of leadership that began in this process."))
	m.expirations, errs[7] = meter.Int64Counter("zkrecipes.session.expirations", metric.WithUnit("{session}"),
		metric.WithDescription("Sessions that were lost."))
	m.reconnects, errs[8] = meter.Int64Counter("zkrecipes.session.reconnects", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections that were lost and replaced, by the server that was lost."))
	m.state, errs[9] = meter.Int64ObservableGauge("zkrecipes.session.state", metric.WithUnit("{state}"),
		metric.WithDescription("0 connected, 1 suspended, 2 lost, 3 closed."))
	m.proofAge, errs[10] = meter.Float64ObservableGauge("zkrecipes.session.proof_age", metric.WithUnit("s"),
		metric.WithDescription("Time since the session was last proven alive."))
	return errors.Join(errs[:]...)
}
