package scenes

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Values has what is reported at the end of a scene: metrics other than 0 by their names, without the unit, and the values of
// their labels, such as "lock_count mutex goods".
type Values map[string]float64

// Reporter is what reports.
type Reporter struct {
	Trace   *recipes.Trace
	Observe func(*recipes.Client) (stop func())
	// Read calls add for each point of each metric. A histogram has the number of its measurements as value.
	Read func(add func(metric string, labels map[string]string, value float64))
}

// scene is a story of a client, and what is reported when it ends.
type scene struct {
	play    func(s *stage)
	values  Values
	records map[string]int // in the log, at Warn or above, by the text
	opts    []recipes.Option
}

// stage is where a scene plays: a client that reports, and a peer that does not.
type stage struct {
	*bubble.Bubble
	client *recipes.Client
}

// RunMetrics plays all scenes, and compares the metrics.
func RunMetrics(t *testing.T, start func(tb testing.TB) Reporter) {
	t.Helper()
	run(t, func(s scene, b *bubble.Bubble) {
		r := start(b)
		client := b.Troubled(append(s.opts, recipes.WithTrace(r.Trace))...)
		stop := r.Observe(client)
		defer stop()
		s.play(&stage{b, client})
		bubble.Pass(bubble.Moment)
		got := Values{}
		r.Read(func(metric string, labels map[string]string, value float64) {
			metric = strings.TrimPrefix(strings.NewReplacer(".", "_", "_total", "", "_seconds", "").Replace(metric), "zkrecipes_")
			if value == 0 || metric == "session_proof_age" {
				return
			}
			for _, label := range []string{"zkrecipes_recipe", "zkrecipes_lock_name", "zkrecipes_outcome", "error_type"} {
				if labels[label] != "" {
					metric += " " + labels[label]
				}
			}
			got[metric] += value
		})
		require.Equal(b, s.values, got)
	})
}

// RunLog plays all scenes, and compares the records in the log.
func RunLog(t *testing.T) {
	t.Helper()
	run(t, func(s scene, b *bubble.Bubble) {
		log := new(testkit.Log)
		handler := slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})
		s.play(&stage{b, b.Troubled(append(s.opts, recipes.WithLogger(slog.New(handler)))...)})
		bubble.Pass(bubble.Moment)
		got := map[string]int{}
		for line := range strings.Lines(log.String()) {
			var record struct{ Msg string }
			require.NoError(b, json.Unmarshal([]byte(line), &record))
			got[record.Msg]++
		}
		if s.records == nil {
			s.records = map[string]int{}
		}
		require.Equal(b, s.records, got)
	})
}

func run(t *testing.T, play func(s scene, b *bubble.Bubble)) {
	t.Helper()
	for name, s := range scenes() {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) { play(s, b) })
		})
	}
}

func (s *stage) mutex(opts ...mutex.Option) *mutex.InterProcessMutex {
	s.Helper()
	m, err := mutex.New(s.client, "/goods", append(opts, mutex.WithName("goods"))...)
	require.NoError(s, err)
	return m
}

// peerHolds has another client hold the mutex.
func (s *stage) peerHolds() *recipes.Lease {
	s.Helper()
	m, err := mutex.New(s.Client(), "/goods")
	require.NoError(s, err)
	return bubble.Acquire(s.Bubble, m.Acquire)
}

func (s *stage) reenter(m *mutex.InterProcessMutex, lease *recipes.Lease) *recipes.Lease {
	s.Helper()
	inner, err := m.Acquire(lease.Context())
	require.NoError(s, err)
	return inner
}

func (s *stage) permits(n int) []*recipes.Lease {
	s.Helper()
	leases, err := must(semaphore.New(s.client, "/permits", 5, semaphore.WithName("goods"))).AcquireN(s.Context(), n)
	require.NoError(s, err)
	return leases
}

func scenes() map[string]scene {
	const held, acquired, released = "lock_count mutex goods", "lock_wait_time mutex goods acquired", "lock_hold_time mutex goods released"
	return map[string]scene{
		"nothing happens": {play: func(*stage) {}, values: Values{}},
		"held": {
			play:   func(s *stage) { bubble.Acquire(s.Bubble, s.mutex().Acquire) },
			values: Values{held: 1, acquired: 1},
		},
		"entered again and again": {
			play: func(s *stage) {
				m := s.mutex()
				lease := bubble.Acquire(s.Bubble, m.Acquire)
				for range 3 {
					lease = s.reenter(m, lease)
				}
			},
			values: Values{held: 1, acquired: 1},
		},
		"entered again, and left once": {
			play: func(s *stage) {
				m := s.mutex()
				lease := bubble.Acquire(s.Bubble, m.Acquire)
				inner := s.reenter(m, lease)
				s.reenter(m, inner)
				s.Release(inner)
			},
			values: Values{held: 1, acquired: 1},
		},
		"entered again, and left": {
			play: func(s *stage) {
				m := s.mutex()
				lease := bubble.Acquire(s.Bubble, m.Acquire)
				s.Release(s.reenter(m, lease), lease)
			},
			values: Values{acquired: 1, released: 1},
		},
		"waits": {
			play: func(s *stage) {
				s.peerHolds()
				bubble.Waiting(s.Bubble, s.Context(), s.mutex().Acquire)
			},
			values: Values{"lock_pending_requests mutex goods": 1},
		},
		"waited in vain": {
			play: func(s *stage) {
				s.peerHolds()
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				_, err := s.mutex().Acquire(ctx)
				require.Error(s, err)
				ctx, cancel = context.WithCancel(s.Context())
				waiting := bubble.Waiting(s.Bubble, ctx, s.mutex().Acquire)
				cancel()
				require.Error(s, bubble.Receive(s.Bubble, waiting).Err)
				_, err = s.mutex().TryAcquire(s.Context())
				require.Error(s, err)
			},
			values: Values{
				"lock_wait_time mutex goods timeout deadline_exceeded": 1,
				"lock_wait_time mutex goods canceled canceled":         1,
				"lock_wait_time mutex goods not_acquired not_acquired": 1,
			},
		},
		"the znode is deleted, and the lock is acquired anew": {
			play: func(s *stage) {
				m := s.mutex()
				lease := bubble.Acquire(s.Bubble, m.Acquire)
				s.Srv.Delete(lease.Path())
				require.Error(s, s.Cause(lease))
				bubble.Acquire(s.Bubble, m.Acquire)
			},
			values: Values{
				held: 1, acquired: 2, "lock_lost mutex goods node_deleted": 1, "lock_hold_time mutex goods lost node_deleted": 1,
			},
			records: map[string]int{"lease lost": 1},
		},
		"two locks are lost with the session": {
			play: func(s *stage) {
				first := bubble.Acquire(s.Bubble, s.mutex().Acquire)
				bubble.Acquire(s.Bubble, must(mutex.New(s.client, "/other", mutex.WithName("other"))).Acquire)
				s.ExpireUnheard(s.client)
				require.Error(s, s.Cause(first))
				bubble.Pass(time.Minute)
			},
			values: Values{
				acquired: 1, "lock_lost mutex goods session_lost": 1, "lock_hold_time mutex goods lost session_lost": 1,
				"lock_wait_time mutex other acquired": 1, "lock_lost mutex other session_lost": 1, "lock_hold_time mutex other lost session_lost": 1,
				"session_expirations": 1, "session_reconnects": 1,
			},
			records: map[string]int{"lease lost": 2, "session lost": 1},
		},
		"the client is closed while it holds": {
			play: func(s *stage) {
				bubble.Acquire(s.Bubble, s.mutex().Acquire)
				require.NoError(s, s.client.Close())
			},
			values: Values{acquired: 1, "lock_hold_time mutex goods closed": 1, "session_state": 3},
		},
		"the connection is cut": {
			play: func(s *stage) {
				bubble.Acquire(s.Bubble, s.mutex().Acquire)
				over := s.Outage()
				over()
				bubble.Pass(time.Minute)
			},
			values: Values{held: 1, acquired: 1, "session_reconnects": 1},
		},
		"held for longer than may be": {
			play: func(s *stage) {
				lease := bubble.Acquire(s.Bubble, s.mutex(mutex.WithMaxHold(time.Second)).Acquire)
				require.Error(s, s.Cause(lease))
				bubble.Pass(bubble.Moment)
				_ = lease.Release()
			},
			values:  Values{acquired: 1, "lock_hold_time mutex goods max_hold": 1},
			records: map[string]int{"lease ended at its maximum hold; its znode stays until the work returns": 1},
		},
		"waits and then holds for long, on one path within a minute": {
			opts: []recipes.Option{recipes.WithSlowWait(20 * time.Second), recipes.WithSlowHold(20 * time.Second)},
			play: func(s *stage) {
				peer := s.peerHolds()
				waiting := bubble.Waiting(s.Bubble, s.Context(), s.mutex().Acquire)
				bubble.Pass(21 * time.Second)
				s.Release(peer)
				lease := bubble.Granted(s.Bubble, waiting)
				bubble.Pass(21 * time.Second)
				s.Release(lease)
			},
			values:  Values{acquired: 1, released: 1},
			records: map[string]int{"slow wait": 1, "slow hold": 1},
		},
		"one of three permits is released": { // AcquireN is one acquisition, until its last permit ends
			play:   func(s *stage) { s.Release(s.permits(3)[1]) },
			values: Values{"lock_count semaphore goods": 3, "lock_wait_time semaphore goods acquired": 1},
		},
		"all permits are released": {
			play: func(s *stage) {
				leases := s.permits(3)
				s.Release(leases[1], leases[2], leases[0])
			},
			values: Values{"lock_wait_time semaphore goods acquired": 1, "lock_hold_time semaphore goods released": 1},
		},
		"readers beside each other, then a writer": {
			play: func(s *stage) {
				lock := must(rwlock.New(s.client, "/rw", rwlock.WithName("goods")))
				first, second := bubble.Acquire(s.Bubble, lock.ReadLock().Acquire), bubble.Acquire(s.Bubble, lock.ReadLock().Acquire)
				s.Release(first, second)
				bubble.Acquire(s.Bubble, lock.WriteLock().Acquire)
			},
			values: Values{
				"lock_wait_time read-lock goods acquired": 2, "lock_hold_time read-lock goods released": 2,
				"lock_count write-lock goods": 1, "lock_wait_time write-lock goods acquired": 1,
			},
		},
		"leads, steps down and leads again": {
			play: func(s *stage) {
				l := must(latch.New(s.client, "/leader", latch.WithName("billing")))
				require.NoError(s, l.Start())
				term, err := l.Await(s.Context())
				require.NoError(s, err)
				s.Release(term)
				bubble.Pass(time.Minute)
				require.True(s, l.HasLeadership())
			},
			values: Values{
				"lock_count latch billing": 1, "election_leader latch billing": 1, "election_transitions latch billing": 2,
				"lock_wait_time latch billing acquired": 2, "lock_hold_time latch billing released": 1,
			},
		},
		"the work of a leader fails": {
			play: func(s *stage) {
				e := must(selector.New(s.client, "/leader", func(context.Context, *recipes.Lease) error { return errors.New("disk full") },
					selector.WithName("billing")))
				require.NoError(s, e.Start())
				bubble.Pass(time.Second)
				require.NoError(s, e.Close())
			},
			values: Values{
				"election_transitions selector billing": 1, "lock_wait_time selector billing acquired": 1, "lock_hold_time selector billing failed": 1,
			},
			records: map[string]int{"leader selector failed": 1},
		},
		"a cohort passes the lock on": {
			play: func(s *stage) {
				m := s.mutex(mutex.WithCohort(mutex.Cohort{}))
				first := bubble.Acquire(s.Bubble, m.Acquire)
				waiting := bubble.Waiting(s.Bubble, s.Context(), m.Acquire)
				s.Release(first)
				bubble.Granted(s.Bubble, waiting)
			},
			values: Values{held: 1, acquired: 2, released: 1},
		},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
