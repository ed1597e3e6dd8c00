package once

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// maxAhead is how far ahead of the servers' clock an instant may be started: more than clocks of hosts that are kept in step
// differ. Without this bound, the occurrence of one host whose clock is wrong would supersede those of all others.
const maxAhead = time.Minute

// awaitPause waits until an occurrence may run again (see WithRetryPause). The time of the latest write of the record is that of the end
// of the last run, or of its start if the end was not recorded.
func (o *Once) awaitPause(ctx context.Context, lease *recipes.Lease, occurrence string) error {
	if o.config.pause == 0 {
		return nil
	}
	node, last, err := o.read(ctx, 0)
	if err != nil || !isSame(occurrence, last.Occurrence) || o.refusal(last, occurrence) != nil {
		return err
	}
	earliest, _ := recipe.ServersNow(lease)
	left := time.UnixMilli(node.Stat.Mtime).Add(o.config.pause).Sub(earliest)
	zkutil.Pause(ctx, min(left, o.config.pause)) // the clock of another leader may be behind
	if ctx.Err() == nil {
		return nil
	}
	err = fmt.Errorf("in the pause before another run, and the function was not called: %w", zkutil.EndOf(ctx))
	return &recipes.WaitError{Position: 1, Err: err}
}

// whileDue returns a context for the start of an occurrence, which ends when the start would be too late. If the
// occurrence is not due, the error is ErrTooEarly or ErrTooLate. Only the servers' clock counts, and where a slow create of the
// lock's znode leaves its time in doubt, the start is refused.
func (o *Once) whileDue(ctx context.Context, lease *recipes.Lease, occurrence string) (context.Context, context.CancelFunc, error) {
	instant, isInstant := instantOf(occurrence)
	if !isInstant {
		return ctx, func() {}, nil
	}
	earliest, latest := recipe.ServersNow(lease)
	if ahead := instant.Sub(earliest); ahead > maxAhead {
		return nil, nil, fmt.Errorf("%w: %s is %v ahead of the servers' clock, which shows %s: compare it with the clock of this host",
			ErrTooEarly, zkutil.Printable(occurrence), ahead.Round(time.Millisecond), earliest.UTC().Format(time.RFC3339))
	}
	if o.config.deadline == 0 {
		return ctx, func() {}, nil
	}
	late := latest.Sub(instant)
	err := fmt.Errorf("%w: %v or more after %s by the servers' clock", ErrTooLate, o.config.deadline, zkutil.Printable(occurrence))
	if late >= o.config.deadline {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.config.deadline-late, err)
	return ctx, cancel, nil
}
