package permits_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/permits"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// permitsOf has a turn unknown to other clients, as if each of them thought that it is first.
func permitsOf(t *testing.T, srv *fixture.Ensemble, i, limit int) *permits.Pool {
	t.Helper()
	s := fixture.Connect(t, srv.Config(time.Hour))
	taken := fixture.MutexOn(s, "/m/leases").Queue
	taken.Prefix, taken.Markers = queue.PermitMarker, []string{queue.PermitMarker}
	return &permits.Pool{
		Turn: fixture.MutexOn(s, fmt.Sprintf("/m/locks%d", i)).Queue, Taken: taken,
		Limit: func(context.Context) (permits.Limit, error) { return permits.Limit{N: limit}, nil },
	}
}

// The numbers of the permits keep the limit, even if all clients think at the same time that it is their turn.
func TestNumbersKeepTheLimit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const limit, clients, rounds = 2, 5, 50
		srv := fixture.NewEnsemble(t)
		var inside, most atomic.Int64
		done := make(chan error, clients)
		for i := range clients {
			p := permitsOf(t, srv, i, limit)
			go func() { // ends with its rounds; joined below
				var err error
				for range rounds {
					entries, failed := p.Acquire(t.Context(), 1, true, nil)
					if err = errors.Join(err, failed); err != nil {
						break
					}
					if now := inside.Add(1); now > most.Load() {
						most.Store(now)
					}
					bubble.Pause(time.Millisecond)
					inside.Add(-1)
					err = errors.Join(err, entries[0].Leave())
				}
				done <- err
			}()
		}
		for range clients {
			require.NoError(t, <-done)
		}
		require.Positive(t, most.Load())
		require.LessOrEqual(t, most.Load(), int64(limit))
		require.Empty(t, srv.Children("/m/leases"))
	})
}
