//go:build linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const whySilent = "the servers are silent"

// whyEnded is the reason for the end of a lease in plain words.
func whyEnded(lease *recipes.Lease) string {
	cause := context.Cause(lease.Context())
	switch {
	case cause == nil:
		return whySilent
	case errors.Is(cause, recipes.ErrNodeDeleted):
		return "its znode was deleted"
	case errors.Is(cause, recipes.ErrSessionLost):
		return "the session is over"
	case errors.Is(cause, recipes.ErrReleased):
		return "another candidate is to lead"
	default:
		return fmt.Sprint(cause)
	}
}

// stall is a time in which this process did not run, because it was stopped or not scheduled, or the machine was
// suspended.
type stall struct{ from, to boottime.Time }

func (s stall) length() time.Duration { return s.to.Sub(s.from) }

// maxDelay is how late a process may run on a busy machine.
const maxDelay = 500 * time.Millisecond

// noteRun records that this process runs, and a stall if the last run is longer ago than planned.
func (g *guard) noteRun(planned time.Duration) {
	now := boottime.Now()
	if s := (stall{g.ranAt, now}); s.length() > planned+maxDelay {
		g.stall = s
	}
	g.ranAt = now
}

// reason returns the reason for a loss: the stall of this process if the stall explains the loss, else why.
func (g *guard) reason(why string) string {
	g.noteRun(0) // the process may have been stopped since the last call
	givenUpAt := g.until - boottime.Time(g.grace())
	hasCrossed := g.stall.from < givenUpAt && givenUpAt <= g.stall.to
	isFresh := g.stall.length() >= g.SessionTimeout()/6 && g.ranAt.Sub(g.stall.to) < g.SessionTimeout()/6
	isDeleted := errors.Is(context.Cause(g.Lease.Context()), recipes.ErrNodeDeleted)
	if hasCrossed || isFresh && !isDeleted {
		return fmt.Sprintf("this process did not run for %.1fs", g.stall.length().Seconds())
	}
	return why
}
