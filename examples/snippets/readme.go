package snippets

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// sellHandler sells one item per request, one request at a time, in all processes together.
func sellHandler(lock *mutex.InterProcessMutex, db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Waits up to 2 s for the lock. The work may take as long as the request lives.
		err := lock.DoWithin(r.Context(), 2*time.Second, func(ctx context.Context, lease *recipes.Lease) error {
			return sellOne(ctx, db, lease.FencingToken()) // ctx ends when the lock is lost
		})
		var wait *recipes.WaitError
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.As(err, &wait): // sellOne was not called
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// lead has one of several processes do the billing, until ctx ends.
func lead(ctx context.Context, client *recipes.Client, db *sql.DB) error {
	take := func(ctx context.Context, term *recipes.Lease) error {
		return bill(ctx, db, term.FencingToken()) // returns when ctx ends: then the next process leads
	}
	election, err := selector.New(client, "/services/billing", take, selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	return election.Run(ctx)
}

// run serves until it fails.
func run(ctx context.Context, db *sql.DB) error {
	client, err := recipes.Connect(ctx, []string{"127.0.0.1:2181"}) // one client per process
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	lock, err := mutex.New(client, "/locks/goods/1001")
	if err != nil {
		return err
	}
	return http.ListenAndServe("127.0.0.1:8080", sellHandler(lock, db))
}

var errSoldOut = errors.New("sold out, or a later holder has claimed the row")

// sellOne is the statement under the lock: claim with the token, read, write.
func sellOne(ctx context.Context, db *sql.DB, token int64) error {
	for _, statement := range []string{
		`UPDATE stock SET token = ?1 WHERE id = 1001 AND token <= ?1`,
		`UPDATE stock SET amount = amount - 1 WHERE id = 1001 AND token = ?1 AND amount > 0`,
	} {
		result, err := db.ExecContext(ctx, statement, token)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, errSoldOut)
		}
	}
	return nil
}

// bill is the leader's work.
func bill(ctx context.Context, db *sql.DB, token int64) error {
	_, err := db.ExecContext(ctx, `UPDATE stock SET token = ?1 WHERE token <= ?1`, token)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
