package main

import "context"

// The tables, in the dialect of openDB: KEY is an auto-incremented key, NAME a case-sensitive text.
// ZooKeeper is case-sensitive, so a case-insensitive column would let one row have two locks.
const (
	goodsTable = `CREATE TABLE IF NOT EXISTS goods_stock (
		id       KEY,
		goods_no NAME      NOT NULL UNIQUE,
		stock    INTEGER   NOT NULL,
		isActive BOOLEAN   NOT NULL,
		token    BIGINT    NOT NULL
	)`
	saleTable = `CREATE TABLE IF NOT EXISTS sale (
		id       KEY,
		goods_no NAME      NOT NULL,
		buyer    NAME      NOT NULL,
		token    BIGINT    NOT NULL,
		at       TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
		UNIQUE (goods_no, buyer)
	)`
)

// openStore opens the database named by dsn, described at the -db flag, and creates missing tables.
func openStore(ctx context.Context, dsn string) (*store, error) {
	db, kind, err := openDB(ctx, dsn, goodsTable, saleTable)
	if err != nil {
		return nil, err
	}
	return &store{db: db, kind: kind}, nil
}
