package selector_test

import (
	"bytes"
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
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// quotaExceeded is a code that zk.Conn has no name for.
const quotaExceeded = zktest.Refusal(-125)

// refuse makes the server refuse an operation.
func refuse(srv *zktest.Server, op zktest.Op, refusal zktest.Refusal) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			return zktest.Fault{Refusal: refusal}
		}
		return zktest.Fault{}
	})
}

// A selector that the server refuses retries with growing pauses. The handler or the log gets each refusal once, and
// the same one again after a time without refusals.
func TestRefusalIsReported(t *testing.T) {
	for name, handled := range map[string]bool{"handler": true, "log": false} {
		for kind, opts := range map[string][]selector.Option{"once": nil, "auto requeue": {selector.WithAutoRequeue()}} {
			t.Run(name+" "+kind, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) { requireRefusalReported(t, handled, kind == "once", opts) })
			})
		}
	}
}

// requireRefusalReported lets the server refuse a selector for one reason, then for another.
func requireRefusalReported(t *testing.T, hasHandler, isOnce bool, opts []selector.Option) {
	t.Helper()
	srv := zktest.NewServer(t)
	srv.Put(elections.Path, nil)
	var log bytes.Buffer
	var told []error
	if hasHandler {
		opts = append(opts, selector.WithErrorHandler(func(err error) { told = append(told, err) }))
	}
	client := testclient.ConnectSettled(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	reports := func(n int) {
		t.Helper()
		logged := strings.Count(log.String(), "level=ERROR")
		if hasHandler {
			require.Equal(t, []int{n, 0}, []int{len(told), logged}, log.String())
		} else {
			require.Equal(t, n, logged, log.String())
		}
	}
	requests := srv.Observe()
	forbidden := refuse(srv, zktest.OpCreate2, zktest.RefuseNoAuth)
	s := elections.NewSelector(t, client, elections.Idle, opts...)
	ctx, cancel := context.WithCancel(t.Context())
	result := run(ctx, s)
	bubble.Pass(10 * time.Minute)
	reports(1)
	require.InDelta(t, 35, requests.Count(zktest.OpCreate2), 15)
	require.Empty(t, s.Path())
	overdrawn := refuse(srv, zktest.OpCreate2, quotaExceeded)
	forbidden()
	bubble.Pass(10 * time.Minute)
	reports(2)
	overdrawn()
	bubble.Pass(time.Minute)
	require.True(t, s.HasLeadership())
	reports(2)
	forbidden = refuse(srv, zktest.OpCreate2, quotaExceeded)
	srv.Delete(s.Path())
	bubble.Pass(10 * time.Minute)
	if isOnce {
		require.ErrorIs(t, resultOf(t, result), recipes.ErrNodeDeleted, "the term is over")
	} else {
		reports(3)
		forbidden()
		bubble.Pass(time.Minute)
		require.True(t, s.HasLeadership())
	}
	cancel()
	if !isOnce {
		require.NoError(t, resultOf(t, result))
	}
	if hasHandler {
		require.ErrorIs(t, told[0], zk.ErrNoAuth)
		require.EqualError(t, told[1], "selector: join "+elections.Path+": create: the quota of this path is exceeded: "+
			"raise it with setquota, or delete znodes below it")
	}
}

// A refused observer calls the handler once, and continues.
func TestRefusedObservationIsReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithID("a"))
		var told []error
		watching := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithErrorHandler(func(err error) { told = append(told, err) }))
		allow := refuse(srv, zktest.OpGetChildren2, zktest.RefuseNoAuth)
		leaders := watching.Observe(t.Context())
		bubble.Pass(testkit.Shorter(time.Hour, 10*time.Minute))
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], zk.ErrNoAuth)
		require.ErrorContains(t, told[0], "selector: observe "+elections.Path+": ")
		allow()
		require.Equal(t, "a", (<-leaders).ID)
	})
}

// When the sequence numbers have run out the order of participants means nothing.
func TestExhaustedSequence(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(elections.Path, nil)
		srv.SetSequence(elections.Path, 1<<31-1)
		var told []error
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithAutoRequeue(),
			selector.WithErrorHandler(func(err error) { told = append(told, err) }))
		require.ErrorIs(t, resultOf(t, run(t.Context(), s)), recipes.ErrSequenceExhausted)
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], recipes.ErrSequenceExhausted)
		require.Empty(t, srv.Children(elections.Path))
	})
}

// A refusal to watch the znode ahead is reported once, for any number of attempts.
func TestRefusalToWatchTheZnodeAheadIsReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
		bubble.Pass(time.Second)
		ahead := first.Path()
		require.NotEmpty(t, ahead)
		allow := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == ahead {
				return zktest.Fault{Refusal: quotaExceeded}
			}
			return zktest.Fault{}
		})
		errs := make(chan error, 1000)
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithErrorHandler(func(err error) { errs <- err }))
		bubble.Pass(10 * time.Minute)
		require.Len(t, errs, 1)
		allow()
		bubble.Pass(time.Minute)
		require.NoError(t, first.Close())
		bubble.Pass(time.Minute)
		require.True(t, s.HasLeadership())
		require.Len(t, errs, 1)
	})
}
