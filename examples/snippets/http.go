package snippets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// ready answers a readiness probe with 200, and reports an outage that lasts for a third of the session timeout.
func ready(client *recipes.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := client.Health()
		isBrief := h.State == recipes.Suspended && time.Since(h.Since) < h.SessionTimeout/3
		if h.State != recipes.Connected && !isBrief {
			w.Header().Set("X-Degraded", "locks") // 200 all the same: pages without a lock still work
		}
		fmt.Fprintln(w, h.State)
	}
}

// sellHandler sells one item per request, one request at a time, in all processes together.
func sellHandler(lock *mutex.InterProcessMutex, sellOne func(ctx context.Context, token int64) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := false
		// Waits up to 2 s for the lock. The work may take as long as the request lives.
		err := lock.DoWithin(r.Context(), 2*time.Second, func(ctx context.Context, lease *recipes.Lease) error {
			began = true
			return sellOne(ctx, lease.FencingToken()) // ctx ends when the lock is lost
		})
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case !began && (errors.Is(err, recipes.ErrNotAcquired) || errors.Is(err, recipes.ErrClosed)):
			w.Header().Set("Retry-After", "1") // sellOne was not called
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
		case errors.Is(err, recipes.ErrSessionLost), errors.Is(err, recipes.ErrNodeDeleted),
			errors.Is(err, recipes.ErrSuspended), errors.Is(err, recipes.ErrClosed):
			http.Error(w, "interrupted", http.StatusGatewayTimeout) // the lock was lost during the work: look before a retry
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError) // an error of the work, or of the server
		}
	}
}

// finish lets the work outlive the request that started it, but not the lock.
func finish(r *http.Request, lock *mutex.InterProcessMutex, work func(ctx context.Context, token int64) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 20*time.Second)
	defer cancel()
	return lock.DoWithin(ctx, 2*time.Second, func(ctx context.Context, lease *recipes.Lease) error {
		return work(ctx, lease.FencingToken())
	})
}

// serve runs until SIGTERM, and then ends in order.
func serve(ctx context.Context, client *recipes.Client, server *http.Server) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }() // ends with Shutdown
	select {
	case err := <-failed:
		return errors.Join(err, client.Close())
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err := server.Shutdown(ending)                   // first the requests, which may hold locks
	return errors.Join(err, client.Shutdown(ending)) // then elections and locks, and the session
}
