package main

import (
	"context"

	"github.com/zkrecipes/zkrecipes/examples/database"
)

// The tables, in the words of package database: KEY is a key that numbers itself, NAME
// a text that tells upper from lower case. ZooKeeper does, so that one row found under
// two spellings would have two locks.
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

// openStore opens the database that dsn names, as the -db flag describes it, and
// creates its tables unless they are there.
func openStore(ctx context.Context, dsn string) (*store, error) {
	db, err := database.Open(ctx, dsn, goodsTable, saleTable)
	if err != nil {
		return nil, err
	}
	return &store{db: db.DB, kind: db.Kind}, nil
}
