package once

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// starts are the starts of one client at one path that are not settled: neither is the function about to be called, nor is the
// start taken back. All Onces of the client on the path share them, because the record of such a start is not that of a run.
type starts struct {
	mu        sync.Mutex              // protects the fields below
	byToken   map[int64]chan struct{} // closed when the start is settled
	takenBack uint64                  // counts the starts that were taken back
	reported  int64                   // token of the latest record that superseded an occurrence in the log
}

// startsKey is the key of starts among the values that a session shares. It is the path of the record.
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

// reported returns the error of Do for a refusal. The first occurrence that a record supersedes is logged, because it may
// never run, and a caller who ignores errors would not notice.
func (o *Once) reported(r *refused) error {
	superseded, ok := r.err.(*SupersededError) //nolint:errorlint // never wrapped
	if !ok {
		return r.err
	}
	last := superseded.Last
	o.starts.mu.Lock()
	isKnown := o.starts.reported == last.Token
	o.starts.reported = last.Token
	o.starts.mu.Unlock()
	if !isKnown {
		o.base.Queue.Session.Log(slog.LevelWarn, "occurrence superseded, not run", "path", o.base.Path,
			"occurrence", superseded.Occurrence, "latest", last.Occurrence, "id", last.ID)
	}
	return superseded
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
		return fmt.Errorf("this client recorded a start of %s but never called its function, and could not undo the record within %v", zkutil.Printable(last.Occurrence), wait)
	}
}

// takeBack takes a start back in the background, and then settles it. A start that could not be taken back is logged, because
// it looks like a run whose process crashed, so that no client would notice.
func (o *Once) takeBack(ctx context.Context, begun Record, u znodes.Undo, settle func(isTakenBack bool)) {
	s := o.base.Queue.Session
	u.OnRefused = func(err error) {
		s.Log(slog.LevelWarn, "can't undo the record of a start without a run; retrying", "path", o.base.Path, "znode", o.record,
			"occurrence", begun.Occurrence, "err", err)
	}
	u.OnOver = func(err error) {
		if err != nil {
			s.Log(slog.LevelWarn, "occurrence is recorded as started but was never run: could not undo the record",
				"path", o.base.Path, "znode", o.record, "occurrence", begun.Occurrence, "err", err)
		}
		settle(true)
	}
	znodes.UndoLater(ctx, s, u)
}

// endWork is recipe.EndWork. After a start that is being taken back, the lock is kept until that is done, for an operation timeout
// at most: then the next host to have the lock does not find the start. Close keeps the lock as well, and waits.
func (o *Once) endWork(lease *recipes.Lease) (await func(stop <-chan struct{}) error) {
	s := o.base.Queue.Session
	settled := o.starts.settled(lease.FencingToken())
	if settled == nil {
		return recipe.EndWork(lease)
	}
	awaitSettled := func() {
		held, release := whileHeld(lease)
		defer release()
		limit := time.NewTimer(s.Config().OperationTimeout)
		defer limit.Stop()
		select {
		case <-settled:
		case <-held.Done():
		case <-limit.C:
		}
	}
	end, err := recipe.BeginWork(lease)
	recipe.NoteReturned(lease)
	if err != nil { // Close waits for this Do
		awaitSettled()
		return recipe.EndWork(lease)
	}
	result := make(chan error, 1)
	s.Background(func(ctx context.Context) { // ends with the undo; the session is not sealed before end is called
		awaitSettled()
		result <- recipe.EndWork(lease)(ctx.Done())
		end()(ctx.Done())
	})
	return func(stop <-chan struct{}) error {
		select {
		case err := <-result:
			return err
		case <-stop:
			return nil // the error of the start has a loss of the lease
		}
	}
}
