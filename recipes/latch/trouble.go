package latch

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Err returns, as a *recipes.OpError, what keeps the latch from standing for election or from
// leading: a refusal of the server, such as zk.ErrNoAuth, or a panic of a listener. The latch
// goes on by itself, and Err is nil again once it waits in the queue or leads. Before Start it is
// nil. Once the latch or its client is closed, started or not, it is ErrClosed, and the text
// says which of them it is. When the latch has given up it is ErrSequenceExhausted, the only error
// that it gives up for. A lost connection is no such trouble: see recipes.Client.State.
func (l *LeaderLatch) Err() error {
	ended := l.candidate.Running()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failure == nil && errors.Is(ended, recipes.ErrClosed):
		return l.opError("stand", ended)
	case l.trouble == nil:
		return nil
	default:
		return l.trouble
	}
}

// report makes err what Err returns, and tells the log and the handler.
func (l *LeaderLatch) report(err *recipes.OpError) {
	l.mu.Lock()
	l.trouble = err
	l.mu.Unlock()
	l.queue.Session.Log(slog.LevelError, "leader latch failed", recipes.AttributesOf(l.path, err)...)
	l.handle(err)
}

// handle gives an error to the user's handler.
func (l *LeaderLatch) handle(err *recipes.OpError) {
	if l.config.handle != nil {
		l.handlers.Post(func() { l.config.handle(err) })
	}
}

// recover ends what report began.
func (l *LeaderLatch) recover() {
	l.mu.Lock()
	known := l.trouble != nil
	l.trouble = nil
	l.mu.Unlock()
	if known {
		l.queue.Session.Log(slog.LevelInfo, "leader latch is in order again", "path", l.path)
	}
}

// withTrouble adds what is in the way to the error of a wait.
func (l *LeaderLatch) withTrouble(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble == nil {
		return err
	}
	return fmt.Errorf("%w (last failure: %w)", err, l.trouble.Err)
}
