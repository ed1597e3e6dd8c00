package session_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// hooks records the calls of a trace.
type hooks struct {
	mu    sync.Mutex // protects calls
	calls []any      // AcquireStart, AcquireEnd, LeaseEnd
	wrong []string   // calls without the context of their AcquireStart
}

type startKey struct{}

func (h *hooks) add(call any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

// take returns the calls since the last take.
func (h *hooks) take() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func (h *hooks) checkContext(ctx context.Context, e any) {
	if start, ok := ctx.Value(startKey{}).(recipes.AcquireStart); !ok || start.Path != locks.Path {
		h.mu.Lock()
		h.wrong = append(h.wrong, "a call without the context of AcquireStart")
		h.mu.Unlock()
	}
	h.add(e)
}

func (h *hooks) trace() *recipes.Trace {
	return &recipes.Trace{
		AcquireStart: func(ctx context.Context, e recipes.AcquireStart) context.Context {
			h.add(e)
			return context.WithValue(ctx, startKey{}, e)
		},
		AcquireEnd: func(ctx context.Context, e recipes.AcquireEnd) { h.checkContext(ctx, e) },
		LeaseEnd:   func(ctx context.Context, e recipes.LeaseEnd) { h.checkContext(ctx, e) },
	}
}

func TestTraceOfAnAcquisition(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		h := &hooks{}
		m := f.Mutex(f.Client(recipes.WithTrace(h.trace()), recipes.WithNamespace("shop")), mutex.WithName("goods"))
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		bubble.Pass(time.Second)
		require.NoError(f, inner.Release())
		bubble.Pass(time.Second)
		require.NoError(f, lease.Release())
		token := lease.FencingToken()
		require.Equal(f, []any{
			recipes.AcquireStart{Recipe: "mutex", Name: "goods", Path: locks.Path},
			recipes.AcquireEnd{Recipe: "mutex", Name: "goods", Path: locks.Path, Token: token},
			recipes.AcquireStart{Recipe: "mutex", Name: "goods", Path: locks.Path},
			recipes.AcquireEnd{Recipe: "mutex", Name: "goods", Path: locks.Path, Token: token, Reentrant: true},
			recipes.LeaseEnd{Recipe: "mutex", Name: "goods", Path: locks.Path, Token: token, Held: time.Second},
			recipes.LeaseEnd{Recipe: "mutex", Name: "goods", Path: locks.Path, Token: token, Held: 2 * time.Second},
		}, h.take(), "all of them before Release has returned")
		require.Empty(f, h.wrong)
	})
}

func TestTraceOfAWait(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		h := &hooks{}
		holder, err := f.Mutex(f.Client()).Acquire(f.Context())
		require.NoError(f, err)
		second := f.Waiting(f.Context(), f.Mutex(f.Client()))
		m := f.Mutex(f.Client(recipes.WithTrace(h.trace())))
		third := f.Waiting(f.Context(), m)
		require.Equal(f, []any{recipes.AcquireStart{Recipe: "mutex", Path: locks.Path}}, h.take())

		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.Equal(f, []any{
			recipes.AcquireStart{Recipe: "mutex", Path: locks.Path, Try: true},
			recipes.AcquireEnd{Recipe: "mutex", Path: locks.Path, Try: true, Ahead: 3, Err: err},
		}, h.take())

		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		_, err = m.Acquire(ctx)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.Equal(f, []any{
			recipes.AcquireStart{Recipe: "mutex", Path: locks.Path},
			recipes.AcquireEnd{Recipe: "mutex", Path: locks.Path, Ahead: 3, Waited: time.Minute, Err: err},
		}, h.take(), "the error is the caller's")

		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, second).Release())
		lease := bubble.Granted(f, third)
		require.Equal(f, []any{
			recipes.AcquireEnd{Recipe: "mutex", Path: locks.Path, Ahead: 2, Waited: time.Minute + bubble.Moment, Token: lease.FencingToken()},
		}, h.take(), "Ahead is that of the first look")
		require.NoError(f, lease.Release())
	})
}

func TestTraceOfALoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		h := &hooks{}
		client := f.Troubled(recipes.WithTrace(h.trace()))
		m := f.Mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		require.Len(f, h.take(), 4)
		bubble.Pass(time.Second)
		f.Srv.Expire(client.Conn().SessionID())
		require.ErrorIs(f, f.Cause(lease), recipes.ErrSessionLost)
		bubble.Pass(bubble.Moment)
		lost := recipes.LeaseEnd{Recipe: "mutex", Path: locks.Path, Held: time.Second, Token: lease.FencingToken(), Cause: recipes.ErrSessionLost}
		require.Equal(f, []any{lost, lost}, h.take())
		require.ErrorIs(f, lease.Release(), recipes.ErrSessionLost)
		require.ErrorIs(f, inner.Release(), recipes.ErrSessionLost)
		require.Empty(f, h.take(), "one LeaseEnd each")

		again, err := m.Acquire(f.Context())
		require.NoError(f, err)
		h.take()
		require.NoError(f, client.Close())
		require.Equal(f, []any{
			recipes.LeaseEnd{Recipe: "mutex", Path: locks.Path, Token: again.FencingToken(), Cause: recipes.ErrClosed},
		}, h.take(), "Close waits for the hooks")
		_, err = m.Acquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrClosed)
		require.Equal(f, recipes.AcquireEnd{Recipe: "mutex", Path: locks.Path, Err: err}, h.take()[1])
		require.Empty(f, h.wrong)
	})
}

// The bound of a lease ends while AcquireEnd runs. The lease ends after AcquireEnd, with the same cause as any other.
func TestTraceOfALeaseThatIsOverAtOnce(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		h := &hooks{}
		slow := &recipes.Trace{AcquireEnd: func(context.Context, recipes.AcquireEnd) { bubble.Pass(time.Minute) }}
		m := f.Mutex(f.Client(recipes.WithTrace(slow), recipes.WithTrace(h.trace())), mutex.WithMaxHold(time.Second))
		lease := bubble.Acquire(f.T, m.Acquire)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		calls := h.take()
		require.Len(f, calls, 3)
		require.ErrorIs(f, calls[2].(recipes.LeaseEnd).Cause, recipes.ErrMaxHold)
		require.NoError(f, lease.Release())
		require.Empty(f, h.take())
	})
}

// For every behaviour of a hook, the lock works, and the other hooks are called.
func TestHooksThatFailChangeNothing(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":  func() { panic("of a hook") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				h, log := &hooks{}, &testkit.Log{}
				failing := &recipes.Trace{
					AcquireStart: func(context.Context, recipes.AcquireStart) context.Context { fail(); return nil },
					AcquireEnd:   func(context.Context, recipes.AcquireEnd) { fail() },
					LeaseEnd:     func(context.Context, recipes.LeaseEnd) { fail() },
					StateChange:  func(recipes.StateChange) { fail() },
				}
				client := f.Troubled(recipes.WithTrace(failing), recipes.WithTrace(h.trace()), recipes.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
				m := f.Mutex(client)
				lease, err := m.Acquire(f.Context())
				require.NoError(f, err)
				require.NoError(f, lease.Release())
				lease, err = m.Acquire(f.Context())
				require.NoError(f, err)
				f.CutAndReconnect(client)
				f.Srv.Expire(client.Conn().SessionID())
				require.ErrorIs(f, f.Cause(lease), recipes.ErrSessionLost)
				bubble.Pass(bubble.Moment)
				require.Len(f, h.take(), 6)
				require.Empty(f, h.wrong)
				if name == "panic" {
					require.Contains(f, log.String(), "of a hook")
				}
			})
		})
	}
}

// A hook may call any method, because no lock is held.
func TestHooksMayCallTheClient(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var client *recipes.Client
		var outcomes []error
		var isSecond atomic.Bool
		trace := &recipes.Trace{LeaseEnd: func(ctx context.Context, _ recipes.LeaseEnd) {
			if isSecond.Swap(true) {
				return
			}
			other, err := f.Mutex(client).Acquire(ctx)
			outcomes = append(outcomes, err, other.Release(), client.Close())
		}}
		client = f.Client(recipes.WithTrace(trace))
		lease, err := f.Mutex(client).Acquire(f.Context())
		require.NoError(f, err)
		_ = lease.Release()
		require.Equal(f, []error{nil, nil, nil}, outcomes)
		require.Equal(f, recipes.Closed, client.State())
	})
}

func TestStateChanges(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var mu sync.Mutex
		var changes []recipes.StateChange
		client := f.Troubled(recipes.WithTrace(&recipes.Trace{StateChange: func(e recipes.StateChange) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, e)
		}}))
		take := func() (taken []recipes.StateChange) {
			bubble.Pass(bubble.Moment)
			mu.Lock()
			defer mu.Unlock()
			taken, changes = changes, nil
			return taken
		}
		server := f.Srv.Addr()
		require.Equal(f, []recipes.StateChange{{From: recipes.Suspended, To: recipes.Connected, Server: server, NewSession: true}}, take())

		f.CutAndReconnect(client)
		cut := take()
		require.Len(f, cut, 2)
		require.Error(f, cut[0].Err)
		cut[0].Err = nil
		require.Equal(f, []recipes.StateChange{
			{From: recipes.Connected, To: recipes.Suspended, Server: server},
			{From: recipes.Suspended, To: recipes.Reconnected, Server: server, LostServer: server},
		}, cut)

		f.ExpireUnheard(client)
		bubble.Pass(time.Minute)
		expired := take()
		require.Len(f, expired, 3)
		require.ErrorIs(f, expired[1].Err, recipes.ErrSessionLost)
		for i := range expired {
			expired[i].Err = nil
		}
		require.Equal(f, []recipes.StateChange{
			{From: recipes.Connected, To: recipes.Suspended, Server: server},
			{From: recipes.Suspended, To: recipes.Lost, Server: server},
			{From: recipes.Lost, To: recipes.Reconnected, Server: server, LostServer: server, NewSession: true},
		}, expired)
		require.NoError(f, client.Close())
		require.Equal(f, []recipes.StateChange{{From: recipes.Connected, To: recipes.Closed}}, take())
	})
}

// Without hooks nothing is allocated for them. A re-entry sends nothing, so its count is exact.
func TestHooksThatAreUnsetCostNoAllocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		count := func(opts ...recipes.Option) float64 {
			m := f.Mutex(f.Client(opts...))
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			defer func() { require.NoError(f, lease.Release()) }()
			return testing.AllocsPerRun(100, func() {
				inner, err := m.Acquire(lease.Context())
				if err := errors.Join(err, inner.Release()); err != nil {
					f.Error(err)
				}
			})
		}
		const ofReentry = 8
		require.LessOrEqual(f, count(), float64(ofReentry))
		require.Greater(f, count(recipes.WithTrace((&hooks{}).trace())), float64(ofReentry), "the count sees those of hooks")
	})
}

func TestInvalidTrace(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		_, err := recipes.Connect(f.Context(), f.Srv.Addrs(), recipes.WithTrace(nil))
		require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		_, err = mutex.New(f.Client(), locks.Path, mutex.WithName(""))
		require.ErrorIs(f, err, recipes.ErrInvalidArgument)
	})
}
