package latch_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// forbid makes the server refuse an operation.
func forbid(srv *zktest.Server, op zktest.Op) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			return zktest.Fault{Refusal: zktest.RefuseNoAuth}
		}
		return zktest.Fault{}
	})
}

// watch returns an option that hands over what a latch tells its error handler.
func watch(errs chan<- error) latch.Option {
	return latch.WithErrorHandler(func(err error) { errs <- err })
}

// taken is what a channel has.
func taken(errs <-chan error) (all []error) {
	for synctest.Wait(); len(errs) > 0; {
		all = append(all, <-errs)
	}
	return all
}

// A latch that is refused says so once, however often it is refused: to its handler, to the
// log and by Err. When it leads, all is forgotten.
func TestRefusalIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, srv *zktest.Server) (allow func())
		want    string
	}{
		"no right to create below the parent": {func(t *testing.T, srv *zktest.Server) func() {
			t.Helper()
			srv.Put("/services", nil)
			owner := testclient.Connect(t, srv, recipes.WithAuth("digest", []byte("owner:secret")))
			_, err := owner.Conn().Create(election, nil, 0, zk.AuthACL(zk.PermAll))
			require.NoError(t, err)
			return func() {
				_, err := owner.Conn().SetACL(election, zk.WorldACL(zk.PermAll), -1)
				require.NoError(t, err)
			}
		}, "no permission to create children of " + election},
		"no right to create the parent": {refusing(zktest.OpCreateContainer, zktest.RefuseNoAuth), "no permission to create children of /services"},
		"no right to list":              {refusing(zktest.OpGetChildren2, zktest.RefuseNoAuth), "no permission to list the children of " + election},
		"quota exceeded":                {refusing(zktest.OpCreate2, quotaExceeded), "unknown error: -125"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				allow := c.prepare(t, srv)
				var log logBuffer
				errs := make(chan error, 100)
				client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				l := enter(t, client, watch(errs))
				pass(10 * time.Minute)
				told := taken(errs)
				require.Len(t, told, 1)
				require.ErrorContains(t, told[0], "latch: join "+election+": ")
				require.ErrorContains(t, told[0], c.want)
				require.ErrorContains(t, l.Err(), c.want)
				var failed *recipes.OpError
				require.ErrorAs(t, l.Err(), &failed)
				require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				require.False(t, isDecided(l))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := l.Await(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, c.want)

				allow()
				await(t, l)
				require.NoError(t, l.Err())
				require.Empty(t, taken(errs))
				require.NoError(t, l.Close())
				require.ErrorIs(t, l.Err(), recipes.ErrClosed)
				require.Empty(t, taken(errs), "closing is no failure")
				require.Empty(t, srv.Children(election))
			})
		})
	}
}

func refusing(op zktest.Op, refusal zktest.Refusal) func(*testing.T, *zktest.Server) func() {
	return func(_ *testing.T, srv *zktest.Server) func() { return refuse(srv, op, refusal) }
}

// Another refusal is news, and so is the same one after all was well.
func TestEachChangeOfARefusalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(election, nil)
		errs := make(chan error, 100)
		l := create(t, testclient.Connect(t, srv), watch(errs))
		require.NoError(t, l.Err())
		allow := refuse(srv, zktest.OpCreate2, quotaExceeded)
		require.NoError(t, l.Start())
		pass(time.Minute)
		require.Len(t, taken(errs), 1)
		forbidden := refuse(srv, zktest.OpCreate2, zktest.RefuseNoAuth)
		allow()
		pass(time.Minute)
		require.Len(t, taken(errs), 1)
		require.ErrorIs(t, l.Err(), zk.ErrNoAuth)
		forbidden()
		term := await(t, l)
		require.NoError(t, l.Err())
		forbid(srv, zktest.OpCreate2)
		srv.Delete(term.Path())
		pass(time.Minute)
		require.Len(t, taken(errs), 1)
		require.ErrorIs(t, l.Err(), zk.ErrNoAuth)
	})
}

// The right is lost while the latch waits. It leaves the queue, where it would be in the way
// of others, and comes back.
func TestRefusalWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := lead(t, testclient.Connect(t, srv))
		second := enter(t, testclient.Connect(t, srv))
		<-second.Decided()
		third := enter(t, testclient.Connect(t, srv))
		<-third.Decided()
		allow := forbid(srv, zktest.OpGetChildren2)
		forbidCreate := forbid(srv, zktest.OpCreate2)
		require.NoError(t, second.Close())
		pass(time.Minute)
		require.ErrorIs(t, third.Err(), zk.ErrNoAuth)
		require.Empty(t, third.Path())
		require.Len(t, srv.Children(election), 1)
		require.True(t, first.HasLeadership())
		allow()
		forbidCreate()
		pass(time.Minute)
		require.NoError(t, third.Err())
		require.Len(t, srv.Children(election), 2)
		require.NoError(t, first.Close())
		await(t, third)
	})
}

// An observer that is refused says so once to the handler, and goes on.
func TestRefusedObservationIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		var log logBuffer
		errs := make(chan error, 100)
		client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		l := create(t, client, watch(errs))
		allow := forbid(srv, zktest.OpGetChildren2)
		seen := l.Observe(t.Context())
		pass(testkit.Shorter(time.Hour, 10*time.Minute))
		refused := taken(errs)
		require.Len(t, refused, 1)
		require.ErrorIs(t, refused[0], zk.ErrNoAuth)
		require.ErrorContains(t, refused[0], "latch: observe "+election)
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
		require.NoError(t, l.Err(), "the campaign is another matter")
		allow()
		pass(5 * time.Second)
		require.Equal(t, []string{"a"}, told(seen))
	})
}

// When the sequence numbers have run out the order of participants means nothing.
func TestExhaustedSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(election, nil)
		srv.SetSequence(election, 1<<31-1)
		errs := make(chan error, 100)
		l := enter(t, testclient.Connect(t, srv), watch(errs))
		_, err := l.Await(t.Context())
		require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
		require.ErrorIs(t, l.Err(), recipes.ErrSequenceExhausted)
		require.True(t, isDecided(l))
		pass(time.Hour)
		require.Len(t, taken(errs), 1)
		require.NoError(t, l.Close())
		require.Empty(t, srv.Children(election))
	})
}

func TestNewRefusesBadOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		for want, opt := range map[string]latch.Option{
			"nil option":                          nil,
			"id of 65537 bytes":                   latch.WithID(string(make([]byte, 64<<10+1))),
			"close mode 2 is unknown":             latch.WithCloseMode(2),
			"step-down grace: 0s is not positive": latch.WithStepDownGrace(0),
			"error handler: nil":                  latch.WithErrorHandler(nil),
			"latch: new /services/billing: n":     nil,
		} {
			_, err := latch.New(client, election, opt)
			require.ErrorContains(t, err, want)
		}
		_, err := latch.New(nil, election)
		require.ErrorContains(t, err, "the client is nil")

		l, err := latch.New(client, election)
		require.NoError(t, err)
		require.ErrorIs(t, l.CloseWith(2), recipes.ErrInvalidArgument)
		require.NoError(t, l.Close())
	})
}
