package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
)

const (
	// look is the time between two looks at a queue that forms.
	look = 10 * time.Millisecond
	// stillness is the time without activity after which the contenders count as waiting, and stillLooks the number of samples
	// in that time. Several samples are needed because a machine that was stopped for that time shows no activity.
	stillness  = 300 * time.Millisecond
	stillLooks = 10
	// formLimit is how long a queue may take to form.
	formLimit = 5 * time.Minute
)

// activity returns figures that are constant while contenders only wait, and whether they show that all contenders wait.
type activity func(ctx context.Context) (allWait bool, figures []int, err error)

// watching is the activity at the server: each waiter has a watch there, if the server reports watches.
func watching(s Stage) activity {
	return func(ctx context.Context) (bool, []int, error) {
		n, err := s.server.Watches(ctx)
		return n == 0 || n >= s.Load.Contenders, []int{n}, err
	}
}

// passing is the activity at a meter: a waiter has no unanswered request.
func passing(m *meter.Meter) activity {
	return func(context.Context) (bool, []int, error) {
		c := m.Counts()
		return c.Answers >= c.Total(), []int{c.Total(), c.Answers}, nil
	}
}

// formed is a queue in which all wait behind a holder of each lock.
type formed struct {
	took    time.Duration // from the beginning until the last contender waited
	release func() (load.Span, error)
	run     *load.Run
}

// formQueue takes the locks, has the contenders of the load wait for them, and returns when all do.
func formQueue(ctx context.Context, s Stage, moves activity) (*formed, error) {
	release, err := s.crew.Hold(s.Load)
	if err != nil {
		return nil, err
	}
	run, err := s.crew.Prepare(s.Load)
	if err != nil {
		return nil, err
	}
	run.Start()
	waitingSince, err := awaitQueue(ctx, s, run, moves)
	if err != nil {
		return nil, fmt.Errorf("runner: %s: %s: %w", s.Name, s.crew.Name, err)
	}
	return &formed{took: time.Duration(waitingSince - run.Began), release: release, run: run}, nil
}

// awaitQueue waits until all contenders are in their queues without any activity. It returns the start of that state.
func awaitQueue(ctx context.Context, s Stage, run *load.Run, moves activity) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, formLimit, errors.New("the queue does not form"))
	defer cancel()
	standing := 0
	return untilCalm(ctx, s.crew.Now, func(ctx context.Context) (bool, []int, error) {
		if run.Ended() {
			_, err := run.Wait()
			return false, nil, fmt.Errorf("a contender did not wait: %w", err)
		}
		if standing != s.contestants() {
			var err error
			if standing, err = queued(ctx, s); err != nil {
				return false, nil, err
			}
		}
		allWait, figures, err := moves(ctx)
		return allWait && standing == s.contestants(), append(figures, standing), err
	})
}

// untilCalm waits until the figures are the wanted ones, and constant for long enough. It returns the time of the last change.
func untilCalm(ctx context.Context, now func() int64, moves activity) (int64, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	c := calm{now: now}
	for {
		wanted, figures, err := moves(ctx)
		if err != nil {
			return 0, err
		}
		if c.look(figures) && wanted {
			return c.since, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w, the latest figures: %v", context.Cause(ctx), figures)
		}
	}
}

// calm tracks whether figures are constant.
type calm struct {
	now    func() int64
	latest []int
	since  int64 // when they changed last
	looks  int   // that found no change since
}

// look reports whether the figures were constant for long enough.
func (c *calm) look(figures []int) bool {
	if !slices.Equal(figures, c.latest) {
		c.latest, c.since, c.looks = figures, c.now(), 0
		return false
	}
	c.looks++
	return c.looks >= stillLooks && c.now()-c.since > stillness.Nanoseconds()
}

// queued is how many contenders stand at all locks of the load.
func queued(ctx context.Context, s Stage) (int, error) {
	sum := 0
	for i := range s.Load.Locks {
		path := s.Load.Path
		if s.Load.Locks > 1 {
			path += "-" + strconv.Itoa(i)
		}
		n, err := s.server.Queued(ctx, path)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// contestants counts the contenders in the queues, and a holder of each lock.
func (s Stage) contestants() int { return s.Load.Contenders + s.Load.Locks }

// allQueued fails unless all stand in their queues.
func allQueued(ctx context.Context, s Stage) error {
	n, err := queued(ctx, s)
	if err == nil && n != s.contestants() {
		err = fmt.Errorf("%d of %d stand there", n, s.contestants())
	}
	if err != nil {
		return fmt.Errorf("runner: %s: %s: the queue: %w", s.Name, s.crew.Name, err)
	}
	return nil
}

// drain releases the locks and returns the acquisitions, including the holder's.
func (q *formed) drain() ([]load.Span, error) {
	holder, err := q.release()
	if err != nil {
		return nil, err
	}
	spans, err := q.run.Wait()
	return append(spans, holder), err
}
