package once

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// starts are the starts of one client at one path that are not settled: neither is the function about to be called, nor is the
// start taken back. All Onces of the client on the path share them, because the record of such a start is not that of a run.
type starts struct {
	mu        sync.Mutex              // protects the fields below
	byToken   map[int64]chan struct{} // closed when the start is settled
	takenBack uint64                  // counts the starts that were taken back
}

// startsKey is the key of starts among the values that a session shares: the path of the record.
type startsKey string

func newStarts() *starts { return &starts{byToken: map[int64]chan struct{}{}} }

// begin adds a start, which the caller has to settle. next is called then.
func (u *starts) begin(token int64, next func()) (settle func(isTakenBack bool)) {
	done := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byToken[token] = done
	return func(isTakenBack bool) {
		u.mu.Lock()
		delete(u.byToken, token)
		if isTakenBack {
			u.takenBack++
		}
		u.mu.Unlock()
		close(done)
		next()
	}
}

// settled returns a channel that is closed when a start is settled, nil if it is settled already or another client's.
func (u *starts) settled(token int64) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byToken[token]
}

// beginRead is called before a read of the record. isOutdated reports afterwards that the record of the read may be that of a start
// without a run: one that is not settled, or was taken back meanwhile.
func (u *starts) beginRead() (isOutdated func(last Record) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.takenBack
	return func(last Record) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.takenBack != before || u.byToken[last.Token] != nil
	}
}

// awaitStart waits until the start of a record is settled, for an operation timeout at most.
func (o *Once) awaitStart(ctx context.Context, last Record) error {
	settled := o.starts.settled(last.Token)
	if settled == nil {
		return nil
	}
	wait := o.base.Queue.Session.Config().OperationTimeout
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return zkutil.EndOf(ctx)
	case <-limit.C:
		return fmt.Errorf("the start of %s by this client, whose function was not called, is not taken back yet, after %v", zkutil.Printable(last.Occurrence), wait)
	}
}

// takeBack takes a start back in the background, and then settles it. A start that stays is logged, because nobody else would
// ever notice: it looks like a run whose process has crashed.
func (o *Once) takeBack(ctx context.Context, begun Record, u session.Undo, settle func(isTakenBack bool)) {
	s := o.base.Queue.Session
	u.OnRefused = func(err error) {
		s.Log(slog.LevelWarn, "a start without a run can't be taken back, trying again", "path", o.base.Path, "znode", o.record,
			"occurrence", begun.Occurrence, "err", err)
	}
	u.OnOver = func(err error) {
		if err != nil {
			s.Log(slog.LevelWarn, "a start was not taken back: its occurrence counts as started, and its function was not called",
				"path", o.base.Path, "znode", o.record, "occurrence", begun.Occurrence, "err", err)
		}
		settle(true)
	}
	s.Persistent().UndoLater(ctx, u)
}

// endWork is recipe.EndWork. After a start that is being taken back, the lock is kept until that is done, for an operation timeout
// at most: then the next host to have the lock does not find the start.
func (o *Once) endWork(lease *recipes.Lease) (await func(stop <-chan struct{}) error) {
	s := o.base.Queue.Session
	settled := o.starts.settled(lease.FencingToken())
	if settled == nil {
		return recipe.EndWork(lease)
	}
	result := make(chan error, 1)
	isBegun := s.Background(func(ctx context.Context) { // ends with the undo, or with the session
		limit := time.NewTimer(s.Config().OperationTimeout)
		defer limit.Stop()
		select {
		case <-settled:
		case <-lease.Context().Done():
		case <-limit.C:
		case <-ctx.Done():
		}
		result <- recipe.EndWork(lease)(ctx.Done())
	})
	if !isBegun {
		return recipe.EndWork(lease)
	}
	return func(stop <-chan struct{}) error {
		select {
		case err := <-result:
			return err
		case <-stop:
			return nil // the error of the start has a loss of the lease
		}
	}
}
