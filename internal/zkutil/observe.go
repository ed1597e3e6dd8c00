package zkutil

import (
	"context"
	"errors"
	"log/slog"

	"github.com/go-zookeeper/zk"
)

// Leader returns the first of the queue, the zero Participant if it is empty.
func (q *Queue) Leader(ctx context.Context) (Participant, error) {
	ctx, cancel := q.Session.whileOpen(ctx)
	defer cancel()
	return retry(ctx, q.Session.cfg.Retry, q.Session.judge(ctx), func() (Participant, error) { return q.leader(ctx) })
}

func (q *Queue) leader(ctx context.Context) (Participant, error) {
	for {
		path, err := q.first(ctx)
		if path == "" || err != nil {
			return Participant{}, err
		}
		n, err := q.Session.readPeer(ctx, path)
		if !errors.Is(err, zk.ErrNoNode) { // else it has just left
			return participantOf(path, n), err
		}
	}
}

// first is the path of the queue's first contender, empty if there is none.
func (q *Queue) first(ctx context.Context) (string, error) {
	queue, err := q.list(ctx)
	if errors.Is(err, zk.ErrNoNode) || err == nil && len(queue) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Join(q.Dir, queue[0].Name), nil
}

// Observe returns the queue's first contender, and again whenever another one takes its
// place: the zero Participant for an empty queue. A slow reader misses what is
// outdated. The channel is closed when ctx or the session ends. The type of its elements
// is the caller's.
func Observe[P any](ctx context.Context, q *Queue, convert func(Participant) P) <-chan P {
	leaders := make(chan P)
	s := q.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.backgroundLocked(func(context.Context) {
		defer close(leaders)
		ctx, cancel := s.whileOpen(ctx)
		defer cancel()
		observe(ctx, q, leaders, convert)
	}) {
		close(leaders)
	}
	return leaders
}

func observe[P any](ctx context.Context, q *Queue, leaders chan<- P, convert func(Participant) P) {
	s := q.Session
	told := Participant{Path: "nobody was told yet"}
	var refusal error // the latest one, until the leader has been seen
	for {
		s.mu.Lock()
		epoch := s.epoch
		s.mu.Unlock()
		now, err := q.sightPatiently(ctx, func(err error) {
			if !isSameFailure(err, refusal) {
				refusal = err
				q.unseen(err)
			}
		})
		if err != nil {
			return
		}
		refusal = nil
		out := leaders
		if told.Path == now.leader.Path {
			out = nil
		}
		for !now.watch.hasFired() {
			s.mu.Lock()
			moved, changed := s.epoch != epoch, s.changed
			s.mu.Unlock()
			if moved {
				break // child events may be missing
			}
			select {
			case out <- convert(now.leader):
				told, out = now.leader, nil
			case <-now.watch.fired:
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// sight is who was first, and a watch that fires when that may have changed.
type sight struct {
	leader Participant
	watch  *Watch
}

// sightPatiently is watchFirst until it succeeds or ctx ends. Refusals go to onRefused.
func (q *Queue) sightPatiently(ctx context.Context, onRefused func(error)) (sight, error) {
	again := func(error) bool { return true }
	return retry(ctx, q.Session.cfg.Retry.patient(), again, func() (sight, error) {
		seen, err := q.watchFirst(ctx)
		if ctx.Err() == nil && refused(err) && !errors.Is(err, zk.ErrNoNode) {
			onRefused(err)
		}
		return seen, err
	})
}

// unseen reports that the server refuses to show who leads.
func (q *Queue) unseen(err error) {
	q.Session.log(slog.LevelWarn, "leader can't be observed, will be repeated", "path", q.Dir, "err", err)
	if q.OnUnseen != nil {
		q.OnUnseen(err)
	}
}

// watchFirst looks who is first, and watches that.
func (q *Queue) watchFirst(ctx context.Context) (sight, error) {
	path, err := q.first(ctx)
	if err != nil {
		return sight{}, err
	}
	if path != "" {
		n, w, err := q.Session.readWatchPeer(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return q.watchFirst(ctx) // it has just left
		}
		return sight{participantOf(path, n), w}, err
	}
	w, err := q.Session.watchArrival(ctx, q.Dir)
	if err != nil {
		return sight{}, err
	}
	if path, err = q.first(ctx); err == nil && path != "" {
		err = errStale // it came before the watch
	}
	return sight{watch: w}, err
}
