package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A deletion fails first for one reason and then for another. The error of Leave has the latest reason.
func TestDeletionIsExplainedByItsLatestFailure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(time.Minute))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		deletions := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpDelete {
				return zktest.Fault{}
			}
			if deletions++; deletions == 1 {
				return zktest.Fault{Lost: zktest.RequestLost}
			}
			return zktest.Fault{Refusal: zktest.RefuseNoAuth}
		})
		start := time.Now()
		err := e.Leave()
		require.ErrorIs(t, err, zkutil.ErrNodeNotDeleted)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

// An outage is explained by its own failure, not by that of the one before.
func TestOutageIsExplainedByItsOwnFailure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(time.Minute)
		cfg.OperationTimeout = 500 * time.Millisecond
		s := fixture.Connect(t, cfg)
		ask := func() error {
			_, err := s.Request(t.Context(), wire.Request{Op: proto.OpGetData, Path: "/"})
			return err
		}
		srv.Stop(srv.A)
		bubble.Pass(2 * time.Second)
		refused := ask()
		require.ErrorIs(t, refused, zkutil.ErrUnavailable)
		require.NotEqual(t, zkutil.ErrUnavailable.Error(), refused.Error(), "it has a reason")
		srv.Restart(srv.A)
		bubble.Eventually(t, 10*time.Second, func() bool { return ask() == nil })
		srv.Freeze(srv.A)
		srv.Disconnect()
		bubble.Pass(time.Millisecond)
		start := time.Now()
		require.EqualError(t, ask(), zkutil.ErrUnavailable.Error(), "nothing has failed yet")
		require.Equal(t, cfg.OperationTimeout, time.Since(start))
		srv.Heal()
	})
}

// After a lost answer, a znode whose name begins like that of the create, or contains its uuid, belongs to another client. It is neither
// taken nor deleted.
func TestSearchAmongNearlyEqualNames(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		var others []string
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpCreate2 || others != nil {
				return zktest.Fault{}
			}
			name := strings.TrimSuffix(strings.TrimPrefix(r.Path, "/m/_c_"), "-lock-")
			others = []string{"_c_" + name[:8] + strings.Repeat("0", 28) + "-lock-", "x" + name + "-", "_c_" + name + "0-"}
			for _, other := range others {
				srv.Put("/m/"+other, nil)
			}
			return zktest.Fault{Lost: zktest.ReplyLost}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.NotNil(t, others)
		require.NoError(t, e.Leave())
		bubble.Pass(time.Minute)
		require.ElementsMatch(t, others, srv.Children("/m"))
	})
}

// Callers that list a directory for different purposes at the same time each get their own result.
func TestListingsForDifferentPurposes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m/a", nil)
		srv.Put("/m/b", nil)
		srv.Delay(zktest.OpGetChildren2, time.Second)
		errs := make(chan error, 9)
		for i := range cap(errs) {
			go func() { errs <- listFor(s, i%3) }() // ends with its listing; joined below
		}
		synctest.Wait()
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	})
}

// listFor lists a directory for one of three purposes, and returns what is wrong with the result.
func listFor(s *session.Session, purpose int) error {
	switch purpose {
	case 0:
		n, err := session.ListChildren(context.Background(), s, "/m", "count", func(names []string) int { return len(names) })
		if n != 2 {
			return fmt.Errorf("%d children: %w", n, err)
		}
		return err
	case 1:
		text, err := session.ListChildren(context.Background(), s, "/m", "text", func(names []string) string { return strings.Join(names, "") })
		if len(text) != 2 {
			return fmt.Errorf("%q: %w", text, err)
		}
		return err
	default:
		n, err := session.ListChildren(context.Background(), s, "/", "count", func(names []string) int { return len(names) })
		if n < 1 {
			return fmt.Errorf("%d children of the root: %w", n, err)
		}
		return err
	}
}

// A wait for several deletions takes one operation timeout at most, however late one of them ends.
func TestLeftoversHaveOneTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(time.Minute))
		var l leftovers.List
		done := make(chan struct{})
		time.AfterFunc(7*time.Second, func() { close(done) })
		l.Add(done)
		l.Add(make(chan struct{}))
		start := time.Now()
		require.ErrorIs(t, s.AwaitLeftovers(&l), zkutil.ErrNodeNotDeleted)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}
