package snippets

import (
	"context"
	"database/sql"
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

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

var errSoldOut = errors.New("sold out, or a later holder has claimed the row")

// sell is the statement under the lock: claim with the token, read, write.
func sell(ctx context.Context, db *sql.DB, token int64) error {
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
