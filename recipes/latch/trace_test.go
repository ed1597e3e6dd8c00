package latch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// hooks records the calls of a trace.
type hooks struct {
	mu    sync.Mutex // protects calls
	calls []any
}

func (h *hooks) add(call any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *hooks) take() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func (h *hooks) trace() *recipes.Trace {
	return &recipes.Trace{
		AcquireStart: func(ctx context.Context, e recipes.AcquireStart) context.Context { h.add(e); return ctx },
		AcquireEnd:   func(_ context.Context, e recipes.AcquireEnd) { h.add(e) },
		LeaseEnd:     func(_ context.Context, e recipes.LeaseEnd) { h.add(e) },
	}
}

func TestTraceAndLogOfTerms(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		h, log := &hooks{}, &testkit.Log{}
		client := testclient.ConnectSettled(t, srv, recipes.WithTrace(h.trace()), recipes.WithLogger(log.Logger(slog.LevelInfo)))
		bubble.Pass(time.Second)
		log.Take()
		before, err := latch.New(testclient.ConnectSettled(t, srv), elections.Path, latch.WithID("billing-0"))
		require.NoError(t, err)
		require.NoError(t, before.Start())
		bubble.Pass(time.Second)
		l, err := latch.New(client, elections.Path, latch.WithName("billing"), latch.WithID("billing-1"))
		require.NoError(t, err)
		require.NoError(t, l.Start())
		bubble.Pass(time.Minute)
		require.NoError(t, before.Close())
		term, err := l.Await(t.Context())
		require.NoError(t, err)
		bubble.Pass(time.Minute)
		token := term.FencingToken()
		require.Equal(t, []any{
			recipes.AcquireStart{Recipe: "latch", Name: "billing", Path: elections.Path},
			recipes.AcquireEnd{Recipe: "latch", Name: "billing", Path: elections.Path, Ahead: 1, Waited: time.Minute, Token: token},
		}, h.take())
		require.Equal(t, []string{
			fmt.Sprintf(`level=INFO msg="in the election" path=%s id=billing-1 position=2 behind=billing-0`, elections.Path),
			fmt.Sprintf("level=INFO msg=leading path=%s token=%d id=billing-1", elections.Path, token),
		}, log.Take(), "the standby is in its own log")

		require.NoError(t, term.Release())
		bubble.Pass(time.Second)
		again, err := l.Await(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []any{ // the latch joins again beside Release
			recipes.LeaseEnd{Recipe: "latch", Name: "billing", Path: elections.Path, Token: token, Held: time.Minute},
			recipes.AcquireStart{Recipe: "latch", Name: "billing", Path: elections.Path},
			recipes.AcquireEnd{Recipe: "latch", Name: "billing", Path: elections.Path, Token: again.FencingToken()},
		}, h.take())
		require.Equal(t, []string{
			fmt.Sprintf("level=INFO msg=\"stepped down\" path=%s token=%d id=billing-1 led=1m0s cause=released", elections.Path, token),
			fmt.Sprintf("level=INFO msg=leading path=%s token=%d id=billing-1", elections.Path, again.FencingToken()),
		}, log.Take())

		srv.Expire(elections.SessionOf(client))
		bubble.Pass(time.Minute)
		calls := h.take()
		require.Len(t, calls, 3)
		var causes []error // a loss is traced in the background
		for _, call := range calls {
			if end, ok := call.(recipes.LeaseEnd); ok {
				causes = append(causes, end.Cause)
			}
		}
		require.Equal(t, []error{recipes.ErrSessionLost}, causes)
		lines := log.Take()
		require.Contains(t, lines[1], `level=WARN msg="lease lost" path=/services/billing token=`)
		third, err := l.Await(t.Context())
		require.NoError(t, err)

		require.NoError(t, l.Close())
		synctest.Wait() // the log is written in the background
		closing := h.take()
		require.Len(t, closing, 1, "the end of a term; no other is awaited")
		require.NoError(t, closing[0].(recipes.LeaseEnd).Cause)
		require.Equal(t, third.FencingToken(), closing[0].(recipes.LeaseEnd).Token)
		require.Regexp(t, `^level=INFO msg="stepped down" .* cause=released$`, log.Take()[0])
	})
}

// A candidate that leaves before it leads ends its acquisition with the reason.
func TestTraceOfACandidateThatLeaves(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		h := &hooks{}
		_, _ = elections.Lead(t, testclient.ConnectSettled(t, srv))
		l, err := latch.New(testclient.ConnectSettled(t, srv, recipes.WithTrace(h.trace())), elections.Path)
		require.NoError(t, err)
		require.NoError(t, l.Start())
		bubble.Pass(time.Minute)
		require.NoError(t, l.Close())
		calls := h.take()
		require.Len(t, calls, 2)
		end := calls[1].(recipes.AcquireEnd)
		require.ErrorIs(t, end.Err, context.Canceled)
		require.ErrorIs(t, end.Err, recipes.ErrReleased)
		end.Err = nil
		require.Equal(t, recipes.AcquireEnd{Recipe: "latch", Path: elections.Path, Ahead: 1, Waited: time.Minute}, end)
	})
}

// A hook of an election may close the election, because Close does not wait for its caller.
func TestAHookMayCloseTheElection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var l *latch.LeaderLatch
		closed := make(chan error, 1)
		trace := &recipes.Trace{AcquireEnd: func(context.Context, recipes.AcquireEnd) { closed <- l.Close() }}
		l, err := latch.New(testclient.ConnectSettled(t, srv, recipes.WithTrace(trace)), elections.Path)
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, l.Start())
		require.NoError(t, <-closed)
		require.NoError(t, l.Close())
		require.Zero(t, time.Since(began))
		require.Empty(t, srv.Children(elections.Path))
	})
}

func TestTextOfALatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := &testkit.Log{}
		l, _ := elections.Lead(t, testclient.ConnectSettled(t, zktest.NewServer(t), recipes.WithID("web-1")))
		log.Logger(slog.LevelInfo).Info("m", "election", l)
		require.Equal(t, []string{
			"level=INFO msg=m election.recipe=latch election.path=/services/billing election.id=web-1 election.leading=true",
		}, log.Take())
		require.Equal(t, "latch /services/billing", l.String())
	})
}
