package elections

import (
	"context"
	"database/sql"
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// ErrStale is returned when a later leader wrote first. Nothing was written.
var ErrStale = errors.New("a later leader was here")

// Write writes as the leader. The version in the row is the term's token. MySQL has to count
// the rows found, not the rows changed: clientFoundRows=true.
func Write(ctx context.Context, db *sql.DB, term *recipes.Lease, value string) error {
	token := term.FencingToken()
	result, err := db.ExecContext(ctx,
		`UPDATE setting SET value = ?, version = ? WHERE name = 'limit' AND version <= ?`, value, token, token)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = ErrStale
	}
	return err
}

// Reelect makes the leader step down and join the queue again at the tail.
func Reelect(election *latch.LeaderLatch) error {
	term, leads := election.Leadership()
	if !leads {
		return nil
	}
	return term.Release()
}
