package elections

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// NewLatch returns a latch on the path.
func NewLatch(t *testing.T, client *recipes.Client, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	l, err := latch.New(client, Path, opts...)
	require.NoError(t, err)
	return l
}

// StartLatch returns a started latch.
func StartLatch(t *testing.T, client *recipes.Client, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	l := NewLatch(t, client, opts...)
	require.NoError(t, l.Start())
	return l
}

// Lead returns a leading latch, and its term.
func Lead(t *testing.T, client *recipes.Client, opts ...latch.Option) (*latch.LeaderLatch, *recipes.Lease) {
	t.Helper()
	l := StartLatch(t, client, opts...)
	return l, Await(t, l)
}

// Await waits for a latch to lead.
func Await(t *testing.T, l *latch.LeaderLatch) *recipes.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	term, err := l.Await(ctx)
	require.NoError(t, err)
	return term
}

// Leaders returns the leading latches.
func Leaders(latches ...*latch.LeaderLatch) []*latch.LeaderLatch {
	var leading []*latch.LeaderLatch
	for _, l := range latches {
		if l.HasLeadership() {
			leading = append(leading, l)
		}
	}
	return leading
}

// IsDecided reports whether a latch's first election is decided by now.
func IsDecided(l *latch.LeaderLatch) bool {
	synctest.Wait()
	return bubble.IsClosed(l.Decided())
}

// ErrorsTo returns a latch option that sends the errors to a channel.
func ErrorsTo(errs chan<- error) latch.Option {
	return latch.WithErrorHandler(func(err error) { errs <- err })
}

// Told waits a moment, and returns the ids of the leaders received by an observer. The id is empty while nobody leads.
func Told(leaders <-chan recipes.Participant) []string {
	bubble.Pass(100 * time.Millisecond)
	seen, _ := Collect(leaders)
	ids := []string{}
	for _, leader := range seen {
		ids = append(ids, leader.ID)
	}
	return ids
}

// Collect returns the values waiting in a channel, and whether the channel is closed.
func Collect[T any](c <-chan T) (values []T, closed bool) {
	synctest.Wait()
	for {
		select {
		case v, ok := <-c:
			if !ok {
				return values, true
			}
			values = append(values, v)
			synctest.Wait()
		default:
			return values, false
		}
	}
}
