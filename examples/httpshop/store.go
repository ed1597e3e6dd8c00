package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

var (
	errUnknownGoods = errors.New("unknown goods")
	errSoldOut      = errors.New("sold out")

	// errStale is returned if a later holder of the lock claimed the goods. Nothing was written.
	errStale = errors.New("stale fencing token")
)

// store has the goods and the purchases. token is the fencing token of the last holder of the lock of the goods.
type store struct{ *sql.DB }

func openStore(ctx context.Context, file string) (*store, error) {
	// Transactions queue at their start. The processes share the file, so each waits for up to 30 s.
	options := url.Values{"_busy_timeout": {"30000"}, "_journal_mode": {"WAL"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer at a time
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS goods (id TEXT NOT NULL UNIQUE, stock INTEGER NOT NULL, token BIGINT NOT NULL);
		CREATE TABLE IF NOT EXISTS purchase (idempotency_key TEXT NOT NULL UNIQUE, goods TEXT NOT NULL, token BIGINT NOT NULL);
		INSERT OR IGNORE INTO goods (id, stock, token) VALUES ('1001', 100, 0)`); err != nil {
		return nil, errors.Join(wrap("create tables in", file, err), db.Close())
	}
	return &store{db}, nil
}

// found reports whether an UPDATE found its row.
func found(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// claim makes token the token of the goods. From then on, writes of earlier holders fail. The claim precedes the
// read, because with a check only at the write, two holders could read the same stock.
func (s *store) claim(ctx context.Context, goods string, token int64) error {
	isFound, err := found(s.ExecContext(ctx,
		`UPDATE goods SET token = ? WHERE id = ? AND token <= ?`, token, goods, token))
	if err == nil && !isFound {
		err = errStale
	}
	return wrap("claim", goods, err)
}

// receipt returns the token of the purchase with the given key, if the purchase exists.
func (s *store) receipt(ctx context.Context, key string) (token int64, ok bool, err error) {
	err = s.QueryRowContext(ctx, `SELECT token FROM purchase WHERE idempotency_key = ?`, key).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return token, err == nil, wrap("receipt", key, err)
}

// read returns the stock of the goods.
func (s *store) read(ctx context.Context, goods string) (stock int, err error) {
	err = s.QueryRowContext(ctx, `SELECT stock FROM goods WHERE id = ?`, goods).Scan(&stock)
	if errors.Is(err, sql.ErrNoRows) {
		err = errUnknownGoods
	}
	return stock, wrap("read", goods, err)
}

// record sets the stock and adds the purchase, in one transaction, if the goods are still claimed with token.
func (s *store) record(ctx context.Context, goods, key string, token int64, stock int) error {
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		return wrap("record", key, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	isFound, err := found(tx.ExecContext(ctx,
		`UPDATE goods SET stock = ? WHERE id = ? AND token = ?`, stock, goods, token))
	if err == nil && !isFound {
		err = errStale
	}
	if err != nil {
		return wrap("record", key, err)
	}
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO purchase (idempotency_key, goods, token) VALUES (?, ?, ?)`, key, goods, token); err != nil {
		return wrap("record", key, err)
	}
	return wrap("record", key, tx.Commit())
}

func wrap(op, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, what, err)
}
