package elections

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// NewSelector returns a selector on the path.
func NewSelector(t *testing.T, client *recipes.Client, take selector.TakeLeadership, opts ...selector.Option) *selector.LeaderSelector {
	t.Helper()
	s, err := selector.New(client, Path, take, opts...)
	require.NoError(t, err)
	return s
}

// StartSelector returns a selector, started a moment ago.
func StartSelector(t *testing.T, client *recipes.Client, take selector.TakeLeadership, opts ...selector.Option) *selector.LeaderSelector {
	t.Helper()
	s := NewSelector(t, client, take, opts...)
	require.NoError(t, s.Start())
	bubble.Pass(bubble.Moment)
	return s
}

// Idle leads until the term ends.
func Idle(ctx context.Context, _ *recipes.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

// Discard is an error handler that ignores all errors.
func Discard(error) {}

// Failing provides a selector's function that records its calls. Run gets the number of the call and returns the result.
type Failing struct {
	Run func(ctx context.Context, n int) error

	mu    sync.Mutex // protects calls
	calls []time.Time
}

// Take is the function.
func (f *Failing) Take(ctx context.Context, _ *recipes.Lease) error {
	f.mu.Lock()
	f.calls = append(f.calls, time.Now())
	n := len(f.calls)
	f.mu.Unlock()
	return f.Run(ctx, n)
}

// Called returns the times of the calls.
func (f *Failing) Called() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Pauses returns the times between calls.
func Pauses(calls []time.Time) (all []time.Duration) {
	for i := range calls[1:] {
		all = append(all, calls[i+1].Sub(calls[i]))
	}
	return all
}

// RequireAround requires a pause to be want, with a jitter of a half.
func RequireAround(t *testing.T, want, pause time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, pause, want/2)
	require.LessOrEqual(t, pause, want*3/2+time.Millisecond)
}
