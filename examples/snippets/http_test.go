package snippets

import (
	"context"
	"errors"
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

func TestStatus(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	lock := lockOn(t, client, "/locks/a")
	do := func(fn func(context.Context, *recipes.Lease) error) int {
		return status(lock.DoWithin(t.Context(), 0, fn))
	}
	require.Equal(t, http.StatusOK, do(func(context.Context, *recipes.Lease) error { return nil }))
	require.Equal(t, http.StatusInternalServerError, do(func(context.Context, *recipes.Lease) error { return errors.New("no paper") }))
	require.Equal(t, http.StatusGatewayTimeout, do(func(ctx context.Context, _ *recipes.Lease) error {
		server.Expire(client.Conn().SessionID())
		<-ctx.Done()
		return ctx.Err()
	}))
	lease, err := lockOn(t, zkclient.Connect(t, server), "/locks/a").Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, do(func(context.Context, *recipes.Lease) error { return nil }))
	require.NoError(t, lease.Release())
}

// The caller of the request has gone, and the work goes on.
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
