package election_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A refused latch reports that once, for any number of refusals, to its handler, to the log and by Err. When it
// leads, the error is cleared.
func TestRefusalIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, srv *zktest.Server) (allow func())
		want    string
	}{
		"no right to create below the parent": {func(t *testing.T, srv *zktest.Server) func() {
			t.Helper()
			srv.Put("/services", nil)
			owner := testclient.Connect(t, srv, recipes.WithAuth("digest", []byte("owner:secret")))
			_, err := owner.Conn().Create(elections.Path, nil, 0, zk.AuthACL(zk.PermAll))
			require.NoError(t, err)
			return func() {
				_, err := owner.Conn().SetACL(elections.Path, zk.WorldACL(zk.PermAll), -1)
				require.NoError(t, err)
			}
		}, "no permission to create children of " + elections.Path},
		"no right to create the parent": {refusing(zktest.OpCreateContainer, zktest.RefuseNoAuth), "no permission to create children of /services"},
		"no right to list":              {refusing(zktest.OpGetChildren2, zktest.RefuseNoAuth), "no permission to list the children of " + elections.Path},
		"quota exceeded":                {refusing(zktest.OpCreate2, elections.QuotaExceeded), "the quota of this path is exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				allow := c.prepare(t, srv)
				var log testkit.Log
				errs := make(chan error, 100)
				client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				l := elections.StartLatch(t, client, elections.ErrorsTo(errs))
				bubble.Pass(10 * time.Minute)
				told := elections.Taken(errs)
				require.Len(t, told, 1)
				require.ErrorContains(t, told[0], "latch: join "+elections.Path+": ")
				require.ErrorContains(t, told[0], c.want)
				require.ErrorContains(t, l.Err(), c.want)
				var failed *recipes.OpError
				require.ErrorAs(t, l.Err(), &failed)
				require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				require.False(t, elections.IsDecided(l))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := l.Await(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, c.want)

				allow()
				elections.Await(t, l)
				require.NoError(t, l.Err())
				require.Empty(t, elections.Taken(errs))
				require.NoError(t, l.Close())
				require.ErrorIs(t, l.Err(), recipes.ErrClosed)
				require.Empty(t, elections.Taken(errs), "closing is no failure")
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

func refusing(op zktest.Op, refusal zktest.Refusal) func(*testing.T, *zktest.Server) func() {
	return func(_ *testing.T, srv *zktest.Server) func() { return elections.Refuse(srv, op, refusal) }
}

// Another refusal is news, and so is the same one after all was well.
func TestEachChangeOfARefusalIsReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(elections.Path, nil)
		errs := make(chan error, 100)
		l := elections.NewLatch(t, testclient.Connect(t, srv), elections.ErrorsTo(errs))
		require.NoError(t, l.Err())
		allow := elections.Refuse(srv, zktest.OpCreate2, elections.QuotaExceeded)
		require.NoError(t, l.Start())
		bubble.Pass(time.Minute)
		require.Len(t, elections.Taken(errs), 1)
		forbidden := elections.Refuse(srv, zktest.OpCreate2, zktest.RefuseNoAuth)
		allow()
		bubble.Pass(time.Minute)
		require.Len(t, elections.Taken(errs), 1)
		require.ErrorIs(t, l.Err(), zk.ErrNoAuth)
		forbidden()
		term := elections.Await(t, l)
		require.NoError(t, l.Err())
		elections.Forbid(srv, zktest.OpCreate2)
		srv.Delete(term.Path())
		bubble.Pass(time.Minute)
		require.Len(t, elections.Taken(errs), 1)
		require.ErrorIs(t, l.Err(), zk.ErrNoAuth)
	})
}

// The permission is lost while the latch waits. It leaves the queue, where it would block others, and returns later.
func TestRefusalWhileWaiting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := elections.Lead(t, testclient.Connect(t, srv))
		second := elections.StartLatch(t, testclient.Connect(t, srv))
		<-second.Decided()
		third := elections.StartLatch(t, testclient.Connect(t, srv))
		<-third.Decided()
		allow := elections.Forbid(srv, zktest.OpGetChildren2)
		forbidCreate := elections.Forbid(srv, zktest.OpCreate2)
		require.NoError(t, second.Close())
		bubble.Pass(time.Minute)
		require.ErrorIs(t, third.Err(), zk.ErrNoAuth)
		require.Empty(t, third.Path())
		require.Len(t, srv.Children(elections.Path), 1)
		require.True(t, first.HasLeadership())
		allow()
		forbidCreate()
		bubble.Pass(time.Minute)
		require.NoError(t, third.Err())
		require.Len(t, srv.Children(elections.Path), 2)
		require.NoError(t, first.Close())
		elections.Await(t, third)
	})
}

// A refused observer calls the handler once, and continues.
func TestRefusedObservationIsTold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		var log testkit.Log
		errs := make(chan error, 100)
		client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		l := elections.NewLatch(t, client, elections.ErrorsTo(errs))
		allow := elections.Forbid(srv, zktest.OpGetChildren2)
		seen := l.Observe(t.Context())
		bubble.Pass(testkit.Shorter(time.Hour, 10*time.Minute))
		refused := elections.Taken(errs)
		require.Len(t, refused, 1)
		require.ErrorIs(t, refused[0], zk.ErrNoAuth)
		require.ErrorContains(t, refused[0], "latch: observe "+elections.Path)
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
		require.NoError(t, l.Err(), "the campaign is another matter")
		allow()
		bubble.Pass(5 * time.Second)
		require.Equal(t, []string{"a"}, elections.Told(seen))
	})
}

// When the sequence numbers have run out the order of participants means nothing.
func TestExhaustedSequence(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(elections.Path, nil)
		srv.SetSequence(elections.Path, 1<<31-1)
		errs := make(chan error, 100)
		l := elections.StartLatch(t, testclient.Connect(t, srv), elections.ErrorsTo(errs))
		_, err := l.Await(t.Context())
		require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
		require.ErrorIs(t, l.Err(), recipes.ErrSequenceExhausted)
		require.True(t, elections.IsDecided(l))
		bubble.Pass(time.Hour)
		require.Len(t, elections.Taken(errs), 1)
		require.NoError(t, l.Close())
		require.Empty(t, srv.Children(elections.Path))
	})
}

func TestNewRefusesBadOptions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		for want, opt := range map[string]latch.Option{
			"nil option":                          nil,
			"id of 65537 bytes":                   latch.WithID(string(make([]byte, 64<<10+1))),
			"unknown close mode 2":                latch.WithCloseMode(2),
			"step-down grace: 0s is not positive": latch.WithStepDownGrace(0),
			"error handler: nil":                  latch.WithErrorHandler(nil),
			"latch: new /services/billing: n":     nil,
		} {
			_, err := latch.New(client, elections.Path, opt)
			require.ErrorContains(t, err, want)
		}
		_, err := latch.New(nil, elections.Path)
		require.ErrorContains(t, err, "the client is nil")

		l, err := latch.New(client, elections.Path)
		require.NoError(t, err)
		require.ErrorIs(t, l.CloseWith(2), recipes.ErrInvalidArgument)
		require.NoError(t, l.Close())
	})
}
