package snippets

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestOneAtATime(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	var cause error
	mux := http.NewServeMux()
	mux.Handle("POST /items/{item}", oneAtATime(client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("item") == "lost" {
			server.Expire(client.Conn().SessionID())
			<-r.Context().Done()
			cause = context.Cause(r.Context())
		}
		w.WriteHeader(http.StatusNoContent)
	})))
	post := func(item string) int {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/items/"+item, nil))
		return answer.Code
	}
	lease, err := lockOn(t, zkclient.Connect(t, server), "/locks/items/1001").Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, post("1001"))
	require.Equal(t, http.StatusNoContent, post("1002"), "another item")
	require.NoError(t, lease.Release())
	require.Equal(t, http.StatusNoContent, post("1001"))
	require.Equal(t, http.StatusNoContent, post("lost"))
	require.ErrorIs(t, cause, recipes.ErrSessionLost)
}
