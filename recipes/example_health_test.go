package recipes_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A handler for readiness. For a third of the session timeout a lost connection counts as ready, so that a
// rolling restart of the servers takes no instance out of service.
func ExampleClient_Health() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := recipes.Connect(context.Background(), []string{server.Addr()})
	if err != nil {
		log.Fatal(err)
	}

	ready := func(w http.ResponseWriter, _ *http.Request) {
		h := client.Health()
		isAboutToReturn := h.State == recipes.Suspended && time.Since(h.Since) < h.SessionTimeout/3
		if h.State == recipes.Connected || isAboutToReturn {
			return
		}
		http.Error(w, fmt.Sprintf("%v since %v: %v", h.State, h.Since, h.Err), http.StatusServiceUnavailable)
	}

	for range 2 {
		answer := httptest.NewRecorder()
		ready(answer, nil)
		fmt.Println(answer.Code)
		_ = client.Close()
	}
	// Output:
	// 200
	// 503
}
