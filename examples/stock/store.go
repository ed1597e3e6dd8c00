package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

var (
	// errUnknownGoods is returned for goods that do not exist or are not active.
	errUnknownGoods = errors.New("unknown goods")

	// errSoldOut is returned when there is nothing left to sell.
	errSoldOut = errors.New("sold out")

	// errBought is returned when the buyer bought some of the goods of a basket before, and not all.
	errBought = errors.New("some of the goods are sold to this buyer")

	// errStale is returned when the row has another token than the writer's, because a later holder of the lock
	// claimed the row. Nothing was written. If all holders get this error, ZooKeeper was emptied or restored, and its
	// tokens restarted: reset the column token to 0.
	errStale = errors.New("stale fencing token")
)

// store is the table of goods and the table of sales. Its methods are single
// statements or short transactions, safe for concurrent use, by other processes
// too. It works alike on SQLite, MySQL and MariaDB.
type store struct {
	db   *sql.DB
	kind string // for the report
}

func (s *store) Close() error { return s.db.Close() }

// claim marks the row of goodsNo as belonging to the holder of token, and shuts
// out every earlier holder from then on. Claiming again with the same token is
// fine. It returns errStale when a later holder was first.
//
// Comparing tokens in the final UPDATE alone, with token <= ?, is not enough:
// holder 33 reads 100 and is paused, holder 34 reads 100 too, 33 wakes up and
// writes 99, which 34 has done nothing against, and 34 writes 99 as well. Two
// items sold, one taken off. A holder must shut its predecessors out before it
// reads. testTokenOnTheWriteAloneLosesUpdates plays this.
func (s *store) claim(ctx context.Context, goodsNo string, token int64) error {
	res, err := s.db.ExecContext(ctx,
		`UPDATE goods_stock SET token = ? WHERE goods_no = ? AND isActive AND token <= ?`,
		token, goodsNo, token)
	found, err := matched(res, err)
	if err != nil {
		return fmt.Errorf("claim %s: %w", goodsNo, err)
	}
	if !found {
		// Either the goods do not exist, which read finds out, or the token is too old.
		if _, err := s.read(ctx, goodsNo); err != nil {
			return err
		}
		return fmt.Errorf("claim %s with token %d: %w", goodsNo, token, errStale)
	}
	return nil
}

// read returns the stock of goodsNo.
func (s *store) read(ctx context.Context, goodsNo string) (stock int, err error) {
	err = s.db.QueryRowContext(ctx,
		`SELECT stock FROM goods_stock WHERE goods_no = ? AND isActive`, goodsNo).Scan(&stock)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errUnknownGoods
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", goodsNo, err)
	}
	return stock, nil
}

// item is one of the goods in a sale.
type item struct {
	goodsNo string
	token   int64 // of the claim
	stock   int   // after the sale
}

// write sets the stock of all items and records their sale to buyer, all or
// nothing. It returns errStale, and changes nothing, unless each row is still
// claimed with its token.
//
// After any other error the transaction may be committed. receipt finds out.
func (s *store) write(ctx context.Context, buyer string, items ...item) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	for _, i := range items {
		res, err := tx.ExecContext(ctx,
			`UPDATE goods_stock SET stock = ? WHERE goods_no = ? AND token = ?`, i.stock, i.goodsNo, i.token)
		found, err := matched(res, err)
		if err != nil {
			return fmt.Errorf("write %s: %w", i.goodsNo, err)
		}
		if !found {
			return fmt.Errorf("write %s with token %d: %w", i.goodsNo, i.token, errStale)
		}
		_, err = tx.ExecContext(ctx,
			`INSERT INTO sale (goods_no, buyer, token) VALUES (?, ?, ?)`, i.goodsNo, buyer, i.token)
		if err != nil {
			return fmt.Errorf("record sale of %s: %w", i.goodsNo, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// receipt reports whether buyer bought goodsNo, and under which token.
func (s *store) receipt(ctx context.Context, goodsNo, buyer string) (token int64, ok bool, err error) {
	err = s.db.QueryRowContext(ctx,
		`SELECT token FROM sale WHERE goods_no = ? AND buyer = ?`, goodsNo, buyer).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("receipt of %s: %w", goodsNo, err)
	}
	return token, true, nil
}

// sales counts the recorded sales of goodsNo.
func (s *store) sales(ctx context.Context, goodsNo string) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM sale WHERE goods_no = ?`, goodsNo).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count sales of %s: %w", goodsNo, err)
	}
	return n, nil
}

// reset puts goodsNo on sale with the given stock, unclaimed, and forgets its
// earlier sales.
func (s *store) reset(ctx context.Context, goodsNo string, stock int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("reset %s: %w", goodsNo, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	for _, stmt := range []struct {
		query string
		args  []any
	}{
		{`DELETE FROM sale WHERE goods_no = ?`, []any{goodsNo}},
		{`DELETE FROM goods_stock WHERE goods_no = ?`, []any{goodsNo}},
		{`INSERT INTO goods_stock (goods_no, stock, isActive, token) VALUES (?, ?, TRUE, 0)`, []any{goodsNo, stock}},
	} {
		if _, err := tx.ExecContext(ctx, stmt.query, stmt.args...); err != nil {
			return fmt.Errorf("reset %s: %w", goodsNo, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("reset %s: %w", goodsNo, err)
	}
	return nil
}

// matched reports whether an UPDATE found its row, even if it changed nothing. openStore asks MySQL to count rows the
// way SQLite does.
func matched(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
