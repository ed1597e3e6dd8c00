package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/cohort"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/permits"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// acquisitions has one of each kind. Successful ones are released.
func acquisitions() map[string]func(ctx context.Context, q *queue.Queue) error {
	acquired := func(e *session.Entry, err error) error {
		if err != nil {
			return err
		}
		return e.Leave()
	}
	return map[string]func(ctx context.Context, q *queue.Queue) error{
		"plain": func(ctx context.Context, q *queue.Queue) error { return acquired(q.Acquire(ctx, true, nil)) },
		"try":   func(ctx context.Context, q *queue.Queue) error { return acquired(q.Acquire(ctx, false, nil)) },
		"under": func(ctx context.Context, q *queue.Queue) error {
			q.Rule = func(contenders []queue.Contender, own int) int { // as that of a read-write lock
				if own > 0 && contenders[own-1].HasNumberOf(contenders[own]) {
					return -1
				}
				return own - 1
			}
			outer, err := q.Acquire(ctx, true, nil)
			if err != nil {
				return err
			}
			err = acquired(q.AcquireUnder(ctx, outer))
			return zkutil.Both(err, outer.Leave())
		},
		"cohort": func(ctx context.Context, q *queue.Queue) error {
			c, err := cohort.New(q, cohort.Bounds{MaxPasses: 1, MaxTenure: time.Second}, 0)
			if err != nil {
				return err
			}
			return acquired(c.Acquire(ctx, true, nil))
		},
		"permits": func(ctx context.Context, q *queue.Queue) error {
			turn, taken := *q, *q
			turn.Dir, taken.Dir, taken.Prefix, taken.Markers = q.Dir+"/locks", q.Dir+"/leases", queue.PermitMarker, []string{queue.PermitMarker}
			permits := permits.Pool{Turn: &turn, Taken: &taken, Limit: func(context.Context) (permits.Limit, error) { return permits.Limit{N: 3}, nil }}
			entries, err := permits.Acquire(ctx, 3, true, nil)
			for _, e := range entries {
				err = zkutil.Both(err, e.Leave())
			}
			return err
		},
	}
}

// An acquisition of any kind, with any end, frees its place, and its bytes with its last znode. No watch stays either.
func TestPlacesAreGivenBack(t *testing.T) {
	for name, acquire := range acquisitions() {
		for _, fault := range []zktest.Fault{{}, {Refusal: zktest.RefuseNoAuth}, {Lost: zktest.ReplyLost}, {Delay: 5 * time.Second}} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(time.Minute))
				require.NoError(t, acquire(t.Context(), fixture.MutexOn(s, "/m").Queue))
				for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpCreate2, zktest.OpGetChildren2} {
					srv.Once(op, fault)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := acquire(ctx, fixture.MutexOn(s, "/m").Queue)
				if fault == (zktest.Fault{}) {
					require.NoError(t, err, name)
				}
				cancel()
				bubble.Pass(30 * time.Second)
				require.Equal(t, budget.Usage{}, s.Budget().Usage(), "%s after %+v: %v", name, fault, err)
				require.Zero(t, s.Tables().Holds)
				srv.RequireIdle(t)
			})
		}
	}
}

// The contender of a cohort is lost while a caller waits inside. The next one takes over the place kept for it, and frees that
// as well.
func TestPlaceThatACohortHasKept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(time.Minute))
		c, err := cohort.New(fixture.MutexOn(s, "/m").Queue, cohort.Bounds{MaxPasses: 10, MaxTenure: time.Hour}, 0)
		require.NoError(t, err)
		first, err := c.Acquire(t.Context(), true, nil)
		require.NoError(t, err)
		inside := make(chan *session.Entry, 1)
		go func() { // ends with the acquisition; joined below
			e, _ := c.Acquire(context.Background(), true, nil)
			inside <- e
		}()
		fixture.Settle()
		srv.Delete(first.Path())
		second := <-inside
		require.NotNil(t, second)
		require.NotEqual(t, first.Path(), second.Path())
		fixture.Settle() // the deletion of the first one is confirmed
		require.Equal(t, budget.Usage{Used: len(second.Path()) + 4, Directories: 1, Nodes: 1}, s.Budget().Usage())
		require.ErrorIs(t, first.Leave(), zkutil.ErrNodeDeleted)
		require.NoError(t, second.Leave())
		fixture.Settle()
		require.Equal(t, budget.Usage{}, s.Budget().Usage())
		srv.RequireIdle(t)
	})
}
