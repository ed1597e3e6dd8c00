package once_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// ledger records the runs of the clients of one schedule. All clients ask for the same occurrences.
type ledger struct {
	testing.TB

	mu       sync.Mutex // protects the fields below
	started  map[string]int
	finished map[string]int
}

// ledgers are the ledgers of the schedules in progress, by their tests.
type ledgers struct {
	mu   sync.Mutex // protects byTest
	byTB map[testing.TB]*ledger
}

func (all *ledgers) of(tb testing.TB) *ledger {
	tb.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.byTB[tb]
	if l == nil {
		l = &ledger{TB: tb, started: map[string]int{}, finished: map[string]int{}}
		all.byTB[tb] = l
		tb.Cleanup(func() {
			all.mu.Lock()
			defer all.mu.Unlock()
			delete(all.byTB, tb)
		})
	}
	return l
}

// scheduled is a Once, and the mutex on the same path that contends with it.
type scheduled struct {
	*mutex.InterProcessMutex

	once    *once.Once
	ledger  *ledger
	retries bool
}

// Do asks for the occurrence of the present tick. ErrDone and ErrSuperseded are no errors of the lock.
func (s scheduled) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	occurrence := once.At(time.Now().Truncate(10 * time.Second))
	err := s.once.Do(ctx, occurrence, func(ctx context.Context, lease *recipes.Lease) error {
		s.ledger.begin(occurrence, s.retries)
		return fn(ctx, lease)
	})
	if err == nil {
		s.ledger.end(occurrence)
	}
	if errors.Is(err, once.ErrDone) || errors.Is(err, once.ErrSuperseded) {
		return nil
	}
	return err
}

func (l *ledger) begin(occurrence string, retries bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started[occurrence]++
	if !retries && l.started[occurrence] > 1 {
		l.Errorf("%s was run %d times", occurrence, l.started[occurrence])
	}
	if l.finished[occurrence] > 0 {
		l.Errorf("%s was run again after it had succeeded", occurrence)
	}
}

func (l *ledger) end(occurrence string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished[occurrence]++
}

func runSchedules(t *testing.T, retries bool) {
	t.Helper()
	all := &ledgers{byTB: map[testing.TB]*ledger{}}
	schedule.Run(t, schedule.Recipe{
		Package: "once",
		Fewer:   true,
		MayFail: func(err error) bool { return errors.Is(err, once.ErrNotRecorded) },
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			m, err := mutex.New(client, path)
			require.NoError(tb, err)
			var options []once.Option
			if retries {
				options = append(options, once.WithRetry())
			}
			o, err := once.New(client, path, options...)
			require.NoError(tb, err)
			return []schedule.Lock{scheduled{m, o, all.of(tb), retries}}
		},
	})
}

// No occurrence runs twice under the faults of schedule.Run. Clients ask for the current tick's occurrence, while a mutex
// contends for the same path.
func TestFaultSchedules(t *testing.T) { runSchedules(t, false) }

// With WithRetry, no occurrence runs again after a run whose Do returned nil.
func TestFaultSchedulesWithRetry(t *testing.T) { runSchedules(t, true) }
