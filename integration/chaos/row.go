package chaos

import (
	"context"
	"database/sql"
	"errors"

	_ "github.com/go-sql-driver/mysql" // registers the driver "mysql"
)

// errStale is returned by a row that saw a higher token.
var errStale = errors.New("the token is stale")

// row is guarded by a lock, and refuses the tokens of former holders. A holder claims the row, reads it, and writes,
// as recipes.Lease.FencingToken describes.
type row struct {
	db   *sql.DB
	name string
}

// makeRows makes an empty table with these rows.
func makeRows(ctx context.Context, db *sql.DB, names ...string) error {
	// This server meets no faults, so it need not wait for the disk.
	_, err := db.ExecContext(ctx, `SET GLOBAL innodb_flush_log_at_trx_commit = 2`)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE guarded (name VARCHAR(100) PRIMARY KEY, token BIGINT NOT NULL, value BIGINT NOT NULL)`)
	for _, name := range names {
		if err == nil {
			_, err = db.ExecContext(ctx, `INSERT INTO guarded VALUES (?, 0, 0)`, name)
		}
	}
	return err
}

// resetTokens has all rows take any token, because those of restored servers begin again. What was done with earlier
// tokens must be over by then.
func resetTokens(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `UPDATE guarded SET token = 0`)
	return err
}

func openRows(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn+"?clientFoundRows=true") }

func (r *row) claim(ctx context.Context, token int64) error {
	return taken(r.db.ExecContext(ctx, `UPDATE guarded SET token = ? WHERE name = ? AND token <= ?`, token, r.name, token))
}

func (r *row) read(ctx context.Context) (value int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT value FROM guarded WHERE name = ?`, r.name).Scan(&value)
	return value, err
}

func (r *row) write(ctx context.Context, token, value int64) error {
	return taken(r.db.ExecContext(ctx, `UPDATE guarded SET value = ? WHERE name = ? AND token = ?`, value, r.name, token))
}

func taken(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
}

// makeTicks makes an empty table of the ticks that were run.
func makeTicks(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE ticks (occurrence VARCHAR(40) PRIMARY KEY, who VARCHAR(100) NOT NULL)`)
	return err
}

// runTick records the run of a tick. isFirst reports whether this is its first run.
func runTick(ctx context.Context, db *sql.DB, occurrence, who string) (isFirst bool, err error) {
	result, err := db.ExecContext(ctx, `INSERT IGNORE INTO ticks VALUES (?, ?)`, occurrence, who)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
