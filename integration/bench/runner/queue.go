package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
)

const (
	// look is the time between two looks at a queue that forms.
	look = 10 * time.Millisecond
	// stillness is how long nothing may happen until the contenders count as waiting.
	stillness = 300 * time.Millisecond
	// formLimit is how long a queue may take to form.
	formLimit = 5 * time.Minute
)

// activity is a figure that stays the same while contenders only wait.
type activity func(ctx context.Context) (int, error)

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

// awaitQueue waits until all contenders stand in their queues and nothing moves. It returns when that began.
func awaitQueue(ctx context.Context, s Stage, run *load.Run, moves activity) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, formLimit, errors.New("the queue does not form"))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	complete, latest, since := false, -1, s.crew.Now()
	for {
		if run.Ended() {
			_, err := run.Wait()
			return 0, fmt.Errorf("a contender did not wait: %w", err)
		}
		if !complete {
			queued, err := queued(ctx, s)
			if err != nil {
				return 0, err
			}
			complete, since = queued == s.Load.Contenders+s.Load.Locks, s.crew.Now()
		}
		figure, err := moves(ctx)
		if err != nil {
			return 0, err
		}
		if figure != latest {
			latest, since = figure, s.crew.Now()
		}
		if complete && s.crew.Now()-since > stillness.Nanoseconds() {
			return since, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
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

// drain releases the locks and returns the acquisitions, that of the holder among them.
func (q *formed) drain() ([]load.Span, error) {
	holder, err := q.release()
	if err != nil {
		return nil, err
	}
	spans, err := q.run.Wait()
	return append(spans, holder), err
}
