package selector_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// scene is a leader whose function takes its time, and a selector of another session that
// waits behind it.
type scene struct {
	t        *testing.T
	srv      *zktest.Server
	client   *recipes.Client
	selector *selector.LeaderSelector
	term     *recipes.Lease
	j        journal
}

// reaction is how long the scene's function needs after the term's end.
const reaction = 3 * time.Second

// newScene lets the function do something before it waits for the end of its term.
func newScene(t *testing.T, srv *zktest.Server, within func(s *scene) error, opts ...recipes.Option) *scene {
	t.Helper()
	s := &scene{t: t, srv: srv, client: testclient.ConnectSettled(t, srv, opts...)}
	s.selector = create(t, s.client, func(ctx context.Context, term *recipes.Lease) error {
		s.term = term
		defer s.j.add("function returned")
		if within != nil {
			if err := within(s); err != nil {
				return err
			}
		}
		<-ctx.Done()
		s.j.add("context ended: %v", context.Cause(ctx))
		pause(reaction)
		return nil
	}, selector.WithErrorHandler(discard))
	var once sync.Once
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == sessionOf(s.client) && (r.Op == zktest.OpDelete || r.Op == zktest.OpClose) {
			once.Do(func() {
				s.j.add("znode deleted")
				if s.term.Context().Err() == nil {
					t.Error("the context has not ended")
				}
			})
		}
		return zktest.Fault{}
	})
	successor := testclient.ConnectSettled(t, srv)
	require.NoError(t, s.selector.Start())
	pause(time.Millisecond)
	enter(t, successor, func(ctx context.Context, _ *recipes.Lease) error {
		s.j.add("successor leads")
		return idle(ctx, nil)
	}, selector.WithAutoRequeue())
	return s
}

var inOrder = []string{"function returned", "znode deleted", "successor leads"}

// Guarantee 8 for every end that a term can have: the context ends, the function returns, and
// only then a request reaches the server that lets a successor in.
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
			s.srv.Partition(sessionOf(s.client))
			pass(timeout * 3 / 4)
			s.srv.Heal()
		}, recipes.ErrSessionLost, nil},
		"disconnect under the standard policy": {func(s *scene) {
			s.srv.Disconnect(sessionOf(s.client))
		}, recipes.ErrSuspended, []recipes.Option{recipes.WithErrorPolicy(recipes.StandardErrorPolicy)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil, c.opts...)
				c.end(s)
				pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, inOrder...), s.j.read())
			})
		})
	}
}

// A function that returns by itself ends its term, in whatever way it returns.
func TestStepDownByTheFunction(t *testing.T) {
	for name, end := range map[string]func(s *scene) error{
		"error":  func(*scene) error { return errWork },
		"panic":  func(*scene) error { panic("boom") },
		"goexit": func(*scene) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, func(s *scene) error {
					pause(time.Second)
					return end(s)
				})
				pass(time.Minute)
				require.Equal(t, inOrder, s.j.read())
				require.ErrorIs(t, context.Cause(s.term.Context()), recipes.ErrReleased)
			})
		})
	}
}

// After a loss that the server decides nobody can hold back the successor: it may lead while
// the function of the old leader still runs. The rest of the order holds all the same.
func TestStepDownOrderAfterALoss(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *scene)
		cause error
	}{
		"expiry":        {func(s *scene) { s.srv.Expire(sessionOf(s.client)) }, recipes.ErrSessionLost},
		"znode deleted": {func(s *scene) { s.srv.Delete(s.term.Path()) }, recipes.ErrNodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil)
				c.end(s)
				pass(time.Second)
				require.ElementsMatch(t, []string{"context ended: " + c.cause.Error(), "successor leads"}, s.j.read())
				pass(time.Minute)
				require.Equal(t, []string{"function returned", "znode deleted"}, s.j.read())
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
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, func(s *scene) error {
					pause(time.Second)
					start := time.Now()
					if err := c.ask(s); err != nil || time.Since(start) > 0 {
						t.Errorf("%v after %v", err, time.Since(start))
					}
					return nil
				})
				pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, inOrder...), s.j.read())
			})
		})
	}
}

func TestCloseInsideTheErrorHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		var s *selector.LeaderSelector
		told := make(chan error, 1)
		s = create(t, client, func(context.Context, *recipes.Lease) error { return errWork },
			selector.WithAutoRequeue(), selector.WithErrorHandler(func(err error) {
				start := time.Now()
				if err := s.Close(); err != nil || time.Since(start) > 0 {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				told <- err
			}))
		require.NoError(t, s.Start())
		require.ErrorIs(t, <-told, errWork)
		require.NoError(t, s.Close())
		require.Empty(t, srv.Children(election))
	})
}
