package otelzkrecipes_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// A whole night, in figures.
func TestMetricsOfANight(t *testing.T) {
	n := newNight(newProbe(t))
	n.play()
	const goods, billing = "zkrecipes.lock.name=goods,", "zkrecipes.lock.name=billing,"
	n.awaitPoints("zkrecipes.lock.wait_time", points{
		goods + "zkrecipes.outcome=acquired,zkrecipes.recipe=mutex":                                  4,
		"error.type=not_acquired," + goods + "zkrecipes.outcome=not_acquired,zkrecipes.recipe=mutex": 1,
		"error.type=deadline_exceeded," + goods + "zkrecipes.outcome=timeout,zkrecipes.recipe=mutex": 1,
		billing + "zkrecipes.outcome=acquired,zkrecipes.recipe=latch":                                2,
	})
	n.awaitPoints("zkrecipes.lock.hold_time", points{
		goods + "zkrecipes.outcome=released,zkrecipes.recipe=mutex":                            1,
		"error.type=node_deleted," + goods + "zkrecipes.outcome=lost,zkrecipes.recipe=mutex":   1,
		"error.type=session_lost," + goods + "zkrecipes.outcome=lost,zkrecipes.recipe=mutex":   1,
		"error.type=session_lost," + billing + "zkrecipes.outcome=lost,zkrecipes.recipe=latch": 1,
	})
	n.requirePoints("zkrecipes.lock.lost", points{
		"error.type=node_deleted," + goods + "zkrecipes.recipe=mutex":   1,
		"error.type=session_lost," + goods + "zkrecipes.recipe=mutex":   1,
		"error.type=session_lost," + billing + "zkrecipes.recipe=latch": 1,
	})
	n.requirePoints("zkrecipes.lock.count", points{goods + "zkrecipes.recipe=mutex": 1, billing + "zkrecipes.recipe=latch": 1})
	n.requirePoints("zkrecipes.lock.pending_requests", points{})
	n.requirePoints("zkrecipes.election.leader", points{billing + "zkrecipes.recipe=latch": 1})
	n.requirePoints("zkrecipes.election.transitions", points{billing + "zkrecipes.recipe=latch": 2})
	n.awaitPoints("zkrecipes.session.reconnects", points{"server.address=127.0.0.1": 2})
	n.requirePoints("zkrecipes.session.expirations", points{"server.address=127.0.0.1": 1})
	require.Equal(t, points{"server.address=127.0.0.1": 0}, n.collect()["zkrecipes.session.state"])
}

// The state is current, and the age of the proof grows while the servers are silent.
func TestSessionGauges(t *testing.T) {
	n := newNight(newProbe(t))
	require.Equal(t, points{"server.address=127.0.0.1": 0}, n.collect()["zkrecipes.session.state"])
	n.acquire()
	age := n.collect()["zkrecipes.session.proof_age"]["server.address=127.0.0.1"]
	require.Less(t, age, patience.Seconds())
	n.server.Partition(n.client.Conn().SessionID())
	require.Eventually(t, func() bool {
		return n.collect()["zkrecipes.session.proof_age"]["server.address=127.0.0.1"] > age
	}, patience, time.Millisecond)
	n.server.HealSessions()
	n.server.Freeze()
	n.server.Disconnect()
	require.Eventually(t, func() bool {
		for _, state := range n.collect()["zkrecipes.session.state"] {
			return state == 1
		}
		return false
	}, patience, time.Millisecond, "suspended")
	n.server.Heal()
}

// The attributes of Observe distinguish clients of one process. After stop, nothing is reported.
func TestObserve(t *testing.T) {
	n := newNight(newProbe(t))
	stop, err := n.Observe(n.client, attribute.String("client", "second"))
	require.NoError(t, err)
	require.Equal(t, points{"server.address=127.0.0.1": 0, "client=second,server.address=127.0.0.1": 0}, n.collect()["zkrecipes.session.state"])
	require.NoError(t, stop())
	require.NoError(t, stop())
	require.Equal(t, points{"server.address=127.0.0.1": 0}, n.collect()["zkrecipes.session.state"])
	require.NoError(t, n.client.Close())
	require.Equal(t, points{"": 3}, n.collect()["zkrecipes.session.state"], "closed, at no server")
}

// No path, znode, token, id or session id is an attribute, because each may have many values.
func TestAttributes(t *testing.T) {
	n := newNight(newProbe(t))
	n.play()
	allowed := []string{"zkrecipes.recipe", "zkrecipes.lock.name", "zkrecipes.outcome", "error.type", "server.address"}
	ofSpans := append([]string{"zkrecipes.try", "zkrecipes.reentrant", "zkrecipes.ahead"}, allowed...)
	forbidden := []string{namespace, lockPath, holderID, "-lock-", "latch-", "/leaders", "/"}
	for _, number := range append(n.tokens, n.owners...) {
		forbidden = append(forbidden, strconv.FormatInt(number, 10), strconv.FormatInt(number, 16))
	}
	check := func(of string, attributes []attribute.KeyValue, allowed []string) {
		for _, a := range attributes {
			require.Contains(t, allowed, string(a.Key), of)
			for _, text := range forbidden {
				require.NotRegexp(t, `(^|\W)`+regexp.QuoteMeta(text)+`(\W|$)`, a.Value.String(), "%s %s", of, a.Key)
			}
		}
	}
	metrics := n.metrics()
	require.Len(t, metrics, 11)
	for name, m := range metrics {
		eachPoint(m, func(attributes attribute.Set, _ float64) { check(name, attributes.ToSlice(), allowed) })
	}
	spans := n.spans.Ended()
	require.NotEmpty(t, spans)
	for _, span := range spans {
		require.Contains(t, []string{"acquire goods", "acquire billing"}, span.Name())
		require.Empty(t, span.Events())
		require.Contains(t, append([]string{""}, "deadline_exceeded"), span.Status().Description)
		check(span.Name(), span.Attributes(), ofSpans)
	}
}

// An acquisition is a child of the caller's span, and lasts from the call to its end.
func TestSpans(t *testing.T) {
	n := newNight(newProbe(t))
	tracer := n.tracers.Tracer("caller")
	ctx, caller := tracer.Start(t.Context(), "deduct stock")
	lease, err := n.lock.Acquire(ctx)
	require.NoError(t, err)
	_, err = n.lock.TryAcquire(ctx)
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	_, err = n.lock.Acquire(waiting)
	require.ErrorIs(t, err, context.Canceled)
	inner, err := n.lock.Acquire(lease.Context())
	require.NoError(t, err)
	require.NoError(t, inner.Release())
	require.NoError(t, lease.Release())
	caller.End()
	var got [][]attribute.KeyValue
	for _, span := range n.spans.Ended() {
		if span.Name() != "acquire goods" {
			continue
		}
		require.Equal(t, caller.SpanContext().TraceID(), span.SpanContext().TraceID())
		if len(got) < 3 {
			require.Equal(t, caller.SpanContext().SpanID(), span.Parent().SpanID())
		}
		got = append(got, span.Attributes())
	}
	mine := func(try bool, ahead int, reentrant bool, result ...attribute.KeyValue) []attribute.KeyValue {
		all := []attribute.KeyValue{attribute.String("zkrecipes.recipe", "mutex"), attribute.String("zkrecipes.lock.name", "goods"), attribute.Bool("zkrecipes.try", try)}
		return append(append(all, result...), attribute.Bool("zkrecipes.reentrant", reentrant), attribute.Int("zkrecipes.ahead", ahead))
	}
	outcome := func(o string) attribute.KeyValue { return attribute.String("zkrecipes.outcome", o) }
	errorType := func(e string) attribute.KeyValue { return attribute.String("error.type", e) }
	require.Equal(t, [][]attribute.KeyValue{
		mine(false, 0, false, outcome("acquired")),
		mine(true, 1, false, outcome("not_acquired"), errorType("not_acquired")),
		mine(false, 0, false, outcome("canceled"), errorType("canceled")),
		mine(false, 0, true, outcome("acquired")),
	}, got)
}
