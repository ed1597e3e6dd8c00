package rwlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestTraceOfBothLocks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []any
		add := func(call any) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, call)
		}
		trace := &recipes.Trace{
			AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) { add(e) },
			LeaseEnd:   func(_ context.Context, e recipes.LeaseEnd) { add(e) },
		}
		client := testclient.ConnectSettled(t, zktest.NewServer(t), recipes.WithTrace(trace), recipes.WithID("web-1"))
		const path = "/locks/traced"
		l, err := rwlock.New(client, path, rwlock.WithName("goods"))
		require.NoError(t, err)
		require.Equal(t, "rwlock /locks/traced", fmt.Sprint(l))
		require.Equal(t, "read-lock /locks/traced", fmt.Sprint(l.ReadLock()))
		require.Equal(t, "[recipe=rwlock path=/locks/traced id=web-1 name=goods]", l.LogValue().String())

		writing, err := l.WriteLock().Acquire(t.Context())
		require.NoError(t, err)
		reading, err := l.ReadLock().Acquire(writing.Context())
		require.NoError(t, err)
		_, err = l.ReadLock().TryAcquire(t.Context())
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.NoError(t, writing.Release())
		require.NoError(t, reading.Release())
		token := writing.FencingToken()
		require.Equal(t, []any{
			recipes.AcquireEnd{Recipe: "write-lock", Name: "goods", Path: path, Token: token},
			recipes.AcquireEnd{Recipe: "read-lock", Name: "goods", Path: path, Token: token},
			recipes.AcquireEnd{Recipe: "read-lock", Name: "goods", Path: path, Try: true, Ahead: 2, Err: err},
			recipes.LeaseEnd{Recipe: "write-lock", Name: "goods", Path: path, Token: token, Held: time.Second},
			recipes.LeaseEnd{Recipe: "read-lock", Name: "goods", Path: path, Token: token, Held: time.Second},
		}, calls)
	})
}
