package latch

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Err returns the latest trouble, as a *recipes.OpError. It is a refusal of the server, such as zk.ErrNoAuth, a panic
// of a listener, ErrNotEphemeral, or ErrWorkGoesOn while a listener is still running after its term. The latch tries
// again by itself, and Err returns nil once the latch waits in the queue for another participant or leads. Before
// Start, Err returns nil.
//
// When the latch or its client is closed, started or not, Err returns ErrClosed, and the text says which was closed,
// and whether a listener is still running. When the latch gave up, Err returns ErrSequenceExhausted, which is the only
// reason to give up. A lost connection is no trouble (see recipes.Client.State).
func (l *LeaderLatch) Err() error {
	if err := l.base.Check("join"); err != nil {
		return err
	}
	ended := l.candidate.CheckRunning()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.endError == nil && errors.Is(ended, recipes.ErrClosed) && l.isOverrun:
		return l.base.OpError("join", zkutil.Both(ended, l.trouble.Err))
	case l.endError == nil && errors.Is(ended, recipes.ErrClosed):
		return l.base.OpError("join", ended)
	case l.trouble == nil:
		return nil
	default:
		return l.trouble
	}
}

// reportTrouble makes Err return err, logs err, and passes err to the handler.
func (l *LeaderLatch) reportTrouble(err *recipes.OpError) {
	l.mu.Lock()
	l.trouble, l.isOverrun = err, false
	l.mu.Unlock()
	l.base.Queue.Session.Log(slog.LevelError, "leader latch failed", recipe.LogAttributes(l.base.Path, err)...)
	l.postToHandler(err)
}

// onOverrun is called while a listener still runs after the end of the term; the log has the overrun already.
func (l *LeaderLatch) onOverrun(err error) {
	trouble := l.base.OpError("lead", err)
	l.mu.Lock()
	l.trouble, l.isOverrun = trouble, true
	l.mu.Unlock()
	l.postToHandler(trouble)
}

// clearOverrun makes Err return nil once work that outlived its term returns, unless there is another trouble.
func (l *LeaderLatch) clearOverrun() {
	l.clearTroubleIf(func() bool { return l.isOverrun })
}

// postToHandler schedules a call of the user's handler, if set.
func (l *LeaderLatch) postToHandler(err *recipes.OpError) {
	if l.config.errorHandler == nil {
		return
	}
	if l.handlerCalls.TryPost(func() { l.config.errorHandler(err) }) {
		l.base.Queue.Session.NoteLeftOut("error handler") // the error itself is in the log
	}
}

// clearTrouble makes Err return nil.
func (l *LeaderLatch) clearTrouble() {
	l.clearTroubleIf(func() bool { return l.trouble != nil })
}

func (l *LeaderLatch) clearTroubleIf(isMeantLocked func() bool) {
	l.mu.Lock()
	hadTrouble := isMeantLocked()
	if hadTrouble {
		l.trouble, l.isOverrun = nil, false
	}
	l.mu.Unlock()
	if hadTrouble {
		l.base.Queue.Session.Log(slog.LevelInfo, "leader latch recovered", "path", l.base.Path)
	}
}

// withTrouble adds the present trouble, if any, to the error of a wait.
func (l *LeaderLatch) withTrouble(err error) error {
	l.mu.Lock()
	trouble := l.trouble
	l.mu.Unlock()
	if trouble == nil {
		return err
	}
	return fmt.Errorf("%w (last failure: %w)", err, trouble.Err) // not under the lock, because a panic's error is the user's
}
