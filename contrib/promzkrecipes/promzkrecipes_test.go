package promzkrecipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// patience is how long tests wait for something that has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients log
	goleak.VerifyTestMain(m)
}

// scene is a client whose events a registry counts.
type scene struct {
	*testing.T
	server    *zktest.Server
	client    *recipes.Client
	collector *promzkrecipes.Collector
	registry  *prometheus.Registry
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, server: zktest.NewServer(t), collector: promzkrecipes.New(), registry: prometheus.NewPedanticRegistry()}
	require.NoError(t, s.registry.Register(s.collector))
	s.client = zkclient.Connect(t, s.server, recipes.WithTrace(s.collector.Trace()))
	t.Cleanup(s.collector.Observe(s.client))
	return s
}

// lines returns the lines of a scrape that begin with a name, without buckets and sums.
func (s *scene) lines(name string) (lines []string) {
	s.Helper()
	families, err := s.registry.Gather()
	require.NoError(s, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				if label.GetValue() != "" {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if family.GetName() == name {
				lines = append(lines, fmt.Sprintf("%s %v", strings.Join(labels, ","), value))
			}
		}
	}
	return lines
}

func (s *scene) acquire(lock *mutex.InterProcessMutex) *recipes.Lease {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	require.NoError(s, err)
	return lease
}

func TestLock(t *testing.T) {
	s := newScene(t)
	lock, err := mutex.New(s.client, "/a", mutex.WithName("goods"))
	require.NoError(t, err)
	lease := s.acquire(lock)
	const goods = "zkrecipes_lock_name=goods,zkrecipes_recipe=mutex"
	require.Equal(t, []string{goods + " 1"}, s.lines("zkrecipes_lock_count"))
	require.Contains(t, s.lines("zkrecipes_lock_lost_total"), "error_type=session_lost,"+goods+" 0", "so that the first loss is an increase")
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	require.NoError(t, lease.Release())
	require.Equal(t, []string{goods + " 0"}, s.lines("zkrecipes_lock_count"))
	require.Equal(t, []string{goods + " 0"}, s.lines("zkrecipes_lock_pending_requests"))
	require.ElementsMatch(t, []string{
		"zkrecipes_lock_name=goods,zkrecipes_outcome=acquired,zkrecipes_recipe=mutex 1",
		"error_type=not_acquired,zkrecipes_lock_name=goods,zkrecipes_outcome=not_acquired,zkrecipes_recipe=mutex 1",
	}, s.lines("zkrecipes_lock_wait_time_seconds"))
	require.Equal(t, []string{"zkrecipes_lock_name=goods,zkrecipes_outcome=released,zkrecipes_recipe=mutex 1"}, s.lines("zkrecipes_lock_hold_time_seconds"))

	lease = s.acquire(lock)
	s.server.Delete(lease.Path())
	<-lease.Context().Done()
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(s.lines("zkrecipes_lock_lost_total"), "\n"), "error_type=node_deleted,"+goods+" 1")
	}, patience, time.Millisecond)
}

// Each permit of an AcquireN counts as a lease. A re-entry is part of its lease.
func TestCountOfLeases(t *testing.T) {
	s := newScene(t)
	permits, err := semaphore.New(s.client, "/permits", 5, semaphore.WithName("goods"))
	require.NoError(t, err)
	leases, err := permits.AcquireN(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []string{"zkrecipes_lock_name=goods,zkrecipes_recipe=semaphore 3"}, s.lines("zkrecipes_lock_count"))
	for _, lease := range leases {
		require.NoError(t, lease.Release())
	}
	require.Equal(t, []string{"zkrecipes_lock_name=goods,zkrecipes_recipe=semaphore 0"}, s.lines("zkrecipes_lock_count"))
	lock, err := mutex.New(s.client, "/a")
	require.NoError(t, err)
	outer := s.acquire(lock)
	inner, err := lock.Acquire(outer.Context())
	require.NoError(t, err)
	require.Contains(t, s.lines("zkrecipes_lock_count"), "zkrecipes_recipe=mutex 1")
	require.NoError(t, inner.Release())
	require.Contains(t, s.lines("zkrecipes_lock_count"), "zkrecipes_recipe=mutex 1")
	require.NoError(t, outer.Release())
}

func TestElectionAndSession(t *testing.T) {
	s := newScene(t)
	l, err := latch.New(s.client, "/leader", latch.WithName("billing"))
	require.NoError(t, err)
	require.NoError(t, l.Start())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = l.Await(ctx)
	require.NoError(t, err)
	const billing = "zkrecipes_lock_name=billing,zkrecipes_recipe=latch"
	require.Equal(t, []string{billing + " 1"}, s.lines("zkrecipes_election_leader"))
	require.Equal(t, []string{billing + " 1"}, s.lines("zkrecipes_election_transitions_total"))
	require.Equal(t, []string{"server_address=127.0.0.1 0"}, s.lines("zkrecipes_session_state"))
	require.Equal(t, []string{"server_address=127.0.0.1 0"}, s.lines("zkrecipes_session_reconnects_total"))
	require.Len(t, s.lines("zkrecipes_session_proof_age_seconds"), 1)
	s.server.Disconnect()
	require.Eventually(t, func() bool {
		lines := s.lines("zkrecipes_session_reconnects_total")
		return len(lines) == 1 && lines[0] == "server_address=127.0.0.1 1"
	}, patience, time.Millisecond)
	require.NoError(t, l.Close())
	require.Equal(t, []string{billing + " 0"}, s.lines("zkrecipes_election_leader"))
	require.NoError(t, s.client.Close())
	require.Equal(t, []string{" 3"}, s.lines("zkrecipes_session_state"), "closed, at no server")
}

// Each metric is named and described as Prometheus wants it.
func TestLint(t *testing.T) {
	s := newScene(t)
	problems, err := testutil.GatherAndLint(s.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// Two clients of one server share a series, which shows the worse state.
func TestObserveSeveralClients(t *testing.T) {
	s := newScene(t)
	second := zkclient.Connect(t, s.server, recipes.WithTrace(s.collector.Trace()))
	stop := s.collector.Observe(second)
	require.Equal(t, []string{"server_address=127.0.0.1 0"}, s.lines("zkrecipes_session_state"))
	stop()
	stop()
}
