package snippets

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestReady(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	probe := func() *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		ready(client)(answer, nil)
		return answer
	}
	require.Empty(t, probe().Header().Get("X-Degraded"))
	require.NoError(t, client.Close())
	require.Equal(t, http.StatusOK, probe().Code)
	require.Equal(t, "locks", probe().Header().Get("X-Degraded"))
}

func TestSellHandler(t *testing.T) {
	server := zktest.NewServer(t)
	client, other := zkclient.Connect(t, server), zkclient.Connect(t, server)
	lock := lockOn(t, client, "/locks/goods/1001")
	post := func(sellOne func(context.Context, int64) error) (code int, retryAfter string) {
		answer := httptest.NewRecorder()
		sellHandler(lock, sellOne)(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
		return answer.Code, answer.Header().Get("Retry-After")
	}
	requireBusy := func(reason string) {
		code, retryAfter := post(func(context.Context, int64) error { panic("called") })
		require.Equal(t, http.StatusServiceUnavailable, code, reason)
		require.Equal(t, "1", retryAfter)
	}
	db := stock(t)
	sellOne := func(ctx context.Context, token int64) error { return sell(ctx, db, token) }
	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusInternalServerError} { // sold out
		code, _ := post(sellOne)
		require.Equal(t, want, code)
	}
	code, _ := post(func(ctx context.Context, _ int64) error {
		server.Expire(client.Conn().SessionID())
		<-ctx.Done()
		return ctx.Err()
	})
	require.Equal(t, http.StatusGatewayTimeout, code)

	lease, err := lockOn(t, other, "/locks/goods/1001").Acquire(t.Context())
	require.NoError(t, err)
	requireBusy("another process has the lock")
	require.NoError(t, lease.Release())
	require.NoError(t, client.Close())
	requireBusy("the client is closed")
}

// A handler that answers 503 after a sale makes its client buy a second time.
func TestSellHandlerAfterTheWorkFoundAnotherLockBusy(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	lease, err := lockOn(t, zkclient.Connect(t, server), "/locks/invoices").Acquire(t.Context())
	require.NoError(t, err)
	handler := sellHandler(lockOn(t, client, "/locks/goods/1001"), func(ctx context.Context, _ int64) error {
		_, err := lockOn(t, client, "/locks/invoices").TryAcquire(ctx)
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
		return err
	})
	answer := httptest.NewRecorder()
	handler(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.Empty(t, answer.Header().Get("Retry-After"))
	require.NoError(t, lease.Release())
}

// The work continues after the caller of the request hangs up.
func TestFinish(t *testing.T) {
	server := zktest.NewServer(t)
	lock := lockOn(t, zkclient.Connect(t, server), "/locks/a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, finish(httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), lock,
		func(ctx context.Context, token int64) error {
			require.Positive(t, token)
			return ctx.Err()
		}))
}

func TestServe(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, serve(ctx, client, &http.Server{Addr: "127.0.0.1:0", ReadHeaderTimeout: time.Second}))
	require.Equal(t, recipes.Closed, client.State())
}
