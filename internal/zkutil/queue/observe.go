package queue

import (
	"context"
	"errors"
	"log/slog"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Leader returns the first contender, or the zero Participant if the queue is empty.
func (q *Queue) Leader(ctx context.Context) (Participant, error) {
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	return session.Repeat(ctx, q.Session, func() (Participant, error) { return q.readLeader(ctx) })
}

func (q *Queue) readLeader(ctx context.Context) (Participant, error) {
	for {
		path, err := q.readFirstPath(ctx)
		if path == "" || err != nil {
			return Participant{}, err
		}
		n, err := q.Session.ReadPeer(ctx, path)
		if !errors.Is(err, zk.ErrNoNode) { // otherwise the contender just left
			return ParticipantOf(path, n), err
		}
	}
}

// readFirstPath returns the path of the first contender, or "" if the queue is empty.
func (q *Queue) readFirstPath(ctx context.Context) (string, error) {
	queue, err := q.ListContenders(ctx)
	if errors.Is(err, zk.ErrNoNode) || err == nil && len(queue) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return zkutil.Join(q.Dir, queue[0].Name), nil
}

// Observe sends the first contender, converted by convert, and again whenever another contender becomes the first. For an
// empty queue it sends the zero Participant. A slow reader misses outdated values. Observe closes the channel when ctx or
// the session ends.
func Observe[P any](ctx context.Context, q *Queue, convert func(Participant) P) <-chan P {
	leaders := make(chan P)
	if !q.Session.Background(func(context.Context) {
		defer close(leaders)
		ctx, cancel := q.Session.WhileOpen(ctx)
		defer cancel()
		q.Session.Retain() // so that the session re-reads watched znodes
		defer q.Session.Release()
		observe(ctx, q, leaders, convert)
	}) {
		close(leaders)
	}
	return leaders
}

// observe sends each new leader until ctx ends.
func observe[P any](ctx context.Context, q *Queue, leaders chan<- P, convert func(Participant) P) {
	s := q.Session
	lastSent := Participant{Path: "none sent yet"}
	for {
		before := s.Snapshot()
		now, err := q.repeatWatchLeader(ctx)
		if err != nil {
			return
		}
		out := leaders
		if lastSent.Path == now.leader.Path {
			out = nil
		}
		for !now.watch.HasFired() {
			current := s.Snapshot()
			if current.Epoch != before.Epoch {
				break // events of the lost connection may be missing
			}
			select {
			case out <- convert(now.leader):
				lastSent, out = now.leader, nil
			case <-now.watch.Fired():
			case <-current.Changed:
			case <-ctx.Done():
				s.ReleaseWatch(now.watch)
				return
			}
		}
		s.ReleaseWatch(now.watch)
	}
}

// watchedLeader is the first contender, with a watch that fires when another contender may be the first.
type watchedLeader struct {
	leader Participant
	watch  *session.Watch
}

// repeatWatchLeader repeats watchLeader until a call succeeds or ctx ends, and reports refusals.
func (q *Queue) repeatWatchLeader(ctx context.Context) (watchedLeader, error) {
	var refusal error // the latest one
	always := func(error) bool { return true }
	return zkutil.RepeatWhile(ctx, q.Session.Config().Retry.Patient(), always, func() (watchedLeader, error) {
		now, err := q.watchLeader(ctx)
		if ctx.Err() == nil && zkutil.IsRefused(err) && !errors.Is(err, zk.ErrNoNode) && !IsSameFailure(err, refusal) {
			refusal = err
			q.reportObserveRefused(err)
		}
		return now, err
	})
}

func (q *Queue) reportObserveRefused(err error) {
	q.Session.Log(slog.LevelWarn, "can't observe the leader; retrying", "path", q.Dir, "err", err)
	if q.OnObserveRefused != nil {
		q.OnObserveRefused(err)
	}
}

func (q *Queue) watchLeader(ctx context.Context) (watchedLeader, error) {
	path, err := q.readFirstPath(ctx)
	if err != nil {
		return watchedLeader{}, err
	}
	if path != "" {
		n, w, err := q.Session.ReadWatchPeer(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return q.watchLeader(ctx) // the contender just left
		}
		return watchedLeader{ParticipantOf(path, n), w}, err
	}
	w, err := q.Session.WatchArrival(ctx, q.Dir)
	if err != nil {
		return watchedLeader{}, err
	}
	if path, err = q.readFirstPath(ctx); err == nil && path == "" {
		return watchedLeader{watch: w}, nil
	}
	q.Session.ReleaseWatch(w)
	if err != nil {
		return watchedLeader{}, err
	}
	return q.watchLeader(ctx) // a contender joined before the watch was set
}
