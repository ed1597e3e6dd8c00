package election_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// scene is a leader whose function takes time to end, and a waiting selector of another session.
type scene struct {
	t        *testing.T
	srv      *zktest.Server
	client   *recipes.Client
	selector *selector.LeaderSelector
	term     *recipes.Lease
	j        elections.Journal
}

// newScene lets the function do something before it waits for the end of its term.
func newScene(t *testing.T, srv *zktest.Server, within func(s *scene) error, opts ...recipes.Option) *scene {
	t.Helper()
	s := &scene{t: t, srv: srv, client: testclient.ConnectSettled(t, srv, opts...)}
	s.selector = elections.NewSelector(t, s.client, func(ctx context.Context, term *recipes.Lease) error {
		s.term = term
		defer s.j.Add("function returned")
		if within != nil {
			if err := within(s); err != nil {
				return err
			}
		}
		<-ctx.Done()
		s.j.Add("context ended: %v", context.Cause(ctx))
		bubble.Pause(elections.Reaction)
		return nil
	}, selector.WithErrorHandler(elections.Discard))
	var once sync.Once
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == elections.SessionOf(s.client) && (r.Op == zktest.OpDelete || r.Op == zktest.OpClose) {
			once.Do(func() {
				s.j.Add("znode deleted")
				if s.term.Context().Err() == nil {
					t.Error("the context has not ended")
				}
			})
		}
		return zktest.Fault{}
	})
	successor := testclient.ConnectSettled(t, srv)
	require.NoError(t, s.selector.Start())
	bubble.Pause(time.Millisecond)
	elections.StartSelector(t, successor, func(ctx context.Context, _ *recipes.Lease) error {
		s.j.Add("successor leads")
		return elections.Idle(ctx, nil)
	}, selector.WithAutoRequeue())
	return s
}

var inOrder = []string{"function returned", "znode deleted", "successor leads"}

// Guarantee 8 for every end of a term. The context ends, the function returns, and only then a request that lets a
// successor in reaches the server.
func TestStepDownOrder(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *scene)
		cause error
		opts  []recipes.Option
	}{
		"Close":               {func(s *scene) { require.NoError(s.t, s.selector.Close()) }, recipes.ErrReleased, nil},
		"InterruptLeadership": {func(s *scene) { s.selector.InterruptLeadership() }, recipes.ErrReleased, nil},
		"term.Release":        {func(s *scene) { require.NoError(s.t, s.term.Release()) }, recipes.ErrReleased, nil},
		"Client.Close":        {func(s *scene) { require.NoError(s.t, s.client.Close()) }, recipes.ErrClosed, nil},
		"partition, and the session comes back": {func(s *scene) {
			s.srv.Partition(elections.SessionOf(s.client))
			bubble.Pass(elections.Timeout * 3 / 4)
			s.srv.Heal()
		}, recipes.ErrSessionLost, nil},
		"disconnect under the standard policy": {func(s *scene) {
			s.srv.Disconnect(elections.SessionOf(s.client))
		}, recipes.ErrSuspended, []recipes.Option{recipes.WithErrorPolicy(recipes.StandardErrorPolicy)}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil, c.opts...)
				c.end(s)
				bubble.Pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, inOrder...), s.j.ReadSettled())
			})
		})
	}
}

// A function that returns by itself ends its term, for every kind of return.
func TestStepDownByTheFunction(t *testing.T) {
	for name, end := range map[string]func(s *scene) error{
		"error":  func(*scene) error { return elections.ErrWork },
		"panic":  func(*scene) error { panic("boom") },
		"goexit": func(*scene) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, func(s *scene) error {
					bubble.Pause(time.Second)
					return end(s)
				})
				bubble.Pass(time.Minute)
				require.Equal(t, inOrder, s.j.ReadSettled())
				require.ErrorIs(t, context.Cause(s.term.Context()), recipes.ErrReleased)
			})
		})
	}
}

// After a loss that the server decides, nothing can hold back the successor: it may lead while the function of the
// old leader still runs. The rest of the order holds.
func TestStepDownOrderAfterALoss(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *scene)
		cause error
	}{
		"expiry":        {func(s *scene) { s.srv.Expire(elections.SessionOf(s.client)) }, recipes.ErrSessionLost},
		"znode deleted": {func(s *scene) { s.srv.Delete(s.term.Path()) }, recipes.ErrNodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil)
				c.end(s)
				bubble.Pass(time.Second)
				require.ElementsMatch(t, []string{"context ended: " + c.cause.Error(), "successor leads"}, s.j.ReadSettled())
				bubble.Pass(time.Minute)
				require.Equal(t, []string{"function returned", "znode deleted"}, s.j.ReadSettled())
			})
		})
	}
}

// From inside the function every way to step down only asks for it.
func TestStepDownAskedForInsideTheFunction(t *testing.T) {
	for name, c := range map[string]struct {
		ask   func(s *scene) error
		cause error
	}{
		"Close":               {func(s *scene) error { return s.selector.Close() }, recipes.ErrReleased},
		"InterruptLeadership": {func(s *scene) error { s.selector.InterruptLeadership(); return nil }, recipes.ErrReleased},
		"term.Release":        {func(s *scene) error { return s.term.Release() }, recipes.ErrReleased},
		"Client.Close":        {func(s *scene) error { return s.client.Close() }, recipes.ErrClosed},
		"all of them": {func(s *scene) error {
			s.selector.InterruptLeadership()
			s.selector.Requeue()
			_ = s.selector.Close()
			return s.client.Close()
		}, recipes.ErrReleased},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, func(s *scene) error {
					bubble.Pause(time.Second)
					start := time.Now()
					if err := c.ask(s); err != nil || time.Since(start) > 0 {
						t.Errorf("%v after %v", err, time.Since(start))
					}
					return nil
				})
				bubble.Pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, inOrder...), s.j.ReadSettled())
			})
		})
	}
}

func TestCloseInsideTheErrorHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		var s *selector.LeaderSelector
		told := make(chan error, 1)
		s = elections.NewSelector(t, client, func(context.Context, *recipes.Lease) error { return elections.ErrWork },
			selector.WithAutoRequeue(), selector.WithErrorHandler(func(err error) {
				start := time.Now()
				if err := s.Close(); err != nil || time.Since(start) > 0 {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				told <- err
			}))
		require.NoError(t, s.Start())
		require.ErrorIs(t, <-told, elections.ErrWork)
		require.NoError(t, s.Close())
		require.Empty(t, srv.Children(elections.Path))
	})
}
