package snippets

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// oneAtATime is a middleware: the requests for one item run one at a time, in all processes together.
func oneAtATime(client *recipes.Client, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, err := mutex.New(client, "/locks/items/"+recipes.Segment(r.PathValue("item")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		began := false
		err = lock.DoWithin(r.Context(), 2*time.Second, func(ctx context.Context, _ *recipes.Lease) error {
			began = true
			next.ServeHTTP(w, r.WithContext(ctx)) // ctx ends when the lock is lost
			return nil
		})
		switch {
		case err != nil && !began:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
		case err != nil:
			slog.ErrorContext(r.Context(), "lock lost during a request", "err", err) // the handler has answered
		}
	})
}
