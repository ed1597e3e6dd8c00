package latch

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Err returns the latest trouble, as a *recipes.OpError: a refusal of the server, such as
// zk.ErrNoAuth, or a panic of a listener. The latch tries again by itself, and Err returns nil when it
// waits in the queue or leads. Before Start it returns nil.
//
// When the latch or its client is closed, started or not, Err returns ErrClosed, and the text says
// which of them was closed. When the latch has given up it returns ErrSequenceExhausted, which is the
// only reason to give up. A lost connection is no trouble: see recipes.Client.State.
func (l *LeaderLatch) Err() error {
	ended := l.candidate.CheckRunning()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.endError == nil && errors.Is(ended, recipes.ErrClosed):
		return l.base.OpError("join", ended)
	case l.trouble == nil:
		return nil
	default:
		return l.trouble
	}
}

// reportTrouble makes Err return err, writes it to the log and gives it to the handler.
func (l *LeaderLatch) reportTrouble(err *recipes.OpError) {
	l.mu.Lock()
	l.trouble = err
	l.mu.Unlock()
	l.base.Queue.Session.Log(slog.LevelError, "leader latch failed", recipe.LogAttributes(l.base.Path, err)...)
	l.postToHandler(err)
}

// postToHandler has the user's handler called, if there is one.
func (l *LeaderLatch) postToHandler(err *recipes.OpError) {
	if l.config.errorHandler != nil {
		l.handlerCalls.Post(func() { l.config.errorHandler(err) })
	}
}

// clearTrouble makes Err return nil.
func (l *LeaderLatch) clearTrouble() {
	l.mu.Lock()
	hadTrouble := l.trouble != nil
	l.trouble = nil
	l.mu.Unlock()
	if hadTrouble {
		l.base.Queue.Session.Log(slog.LevelInfo, "leader latch has recovered", "path", l.base.Path)
	}
}

// withTrouble adds the trouble, if there is one, to the error of a wait.
func (l *LeaderLatch) withTrouble(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble == nil {
		return err
	}
	return fmt.Errorf("%w (last failure: %w)", err, l.trouble.Err)
}
