package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

// The tables. KEY and NAME stand for what databases spell differently: a key that
// numbers itself, and a text that tells upper from lower case. ZooKeeper does, so
// that one row found under two spellings would have two locks.
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
	kind, openDB := "SQLite", openSQLite
	words := strings.NewReplacer("KEY", "INTEGER PRIMARY KEY", "NAME", "VARCHAR(64)")
	if isMySQL(dsn) {
		kind, openDB = "MySQL/MariaDB", openMySQL
		words = strings.NewReplacer("KEY", "INTEGER PRIMARY KEY AUTO_INCREMENT",
			"NAME", "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin")
	}
	db, err := openDB(dsn)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	for _, table := range []string{goodsTable, saleTable} {
		if _, err := db.ExecContext(ctx, words.Replace(table)); err != nil {
			_ = db.Close()
			return nil, fmt.Errorf("database: create tables: %w", err)
		}
	}
	return &store{db: db, kind: kind}, nil
}

func isMySQL(dsn string) bool {
	return strings.HasPrefix(dsn, "mysql://") ||
		strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix(")
}

// openSQLite opens a file that several processes share: readers do not stop the
// writer (WAL), writers wait for each other instead of failing, and a transaction
// takes its turn at its beginning, because one that starts by reading can't wait
// once it wants to write.
//
// SQLite has one writer at a time, so one connection a process is enough, and
// spares the processes the polling for a busy file.
func openSQLite(file string) (*sql.DB, error) {
	query := url.Values{
		"_busy_timeout": {"30000"}, // ms
		"_journal_mode": {"WAL"},
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"},
	}
	name := (&url.URL{Path: file}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+name+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// openMySQL opens MySQL or MariaDB. An UPDATE is made to count the rows that it
// found, not those that it changed: a row claimed again with the same token was
// found, and looks like a refusal otherwise.
func openMySQL(dsn string) (*sql.DB, error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.ClientFoundRows = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	return db, nil
}

// mysqlConfig understands a URL, and what go-sql-driver calls a DSN, the latter
// with or without mysql:// before it.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	rest, _ := strings.CutPrefix(dsn, "mysql://")
	if strings.Contains(rest, "@tcp(") || strings.Contains(rest, "@unix(") {
		return mysql.ParseDSN(rest)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net = "tcp"
	cfg.Addr = u.Host
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	return cfg, nil
}
