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

// openDB opens the database named by dsn, an SQLite file or a DSN of go-sql-driver, and returns its name for reports. It runs the
// statements of tables, which must have no effect on existing tables. The statements are written for both kinds of database: KEY
// stands for an auto-incremented key, NAME for a short case-sensitive text, and INSERT NEW for an INSERT that leaves existing rows
// alone.
func openDB(ctx context.Context, dsn string, tables ...string) (db *sql.DB, kind string, err error) {
	kind, open := "SQLite", openSQLite
	words := strings.NewReplacer(
		"KEY", "INTEGER PRIMARY KEY",
		"NAME", "VARCHAR(64)",
		"INSERT NEW", "INSERT OR IGNORE")
	if isMySQL(dsn) {
		kind, open = "MySQL/MariaDB", openMySQL
		words = strings.NewReplacer(
			"KEY", "INTEGER PRIMARY KEY AUTO_INCREMENT",
			"NAME", "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin",
			"INSERT NEW", "INSERT IGNORE")
	}
	if db, err = open(dsn); err != nil {
		return nil, "", fmt.Errorf("database: %w", err)
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, words.Replace(table)); err != nil {
			_ = db.Close()
			return nil, "", fmt.Errorf("database: create tables: %w", err)
		}
	}
	return db, kind, nil
}

// found reports whether an UPDATE found its row, even if it changed nothing.
func found(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func isMySQL(dsn string) bool {
	return strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix(")
}

// openSQLite opens a file shared by several processes. Readers do not block the writer (WAL), writers wait for each
// other instead of failing, and a transaction queues at its start, because a transaction that starts with a read
// can't wait when it wants to write. SQLite has one writer at a time, so one connection per process is enough.
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

// openMySQL opens MySQL or MariaDB. An UPDATE counts the rows that it found, not the rows that it changed. Otherwise
// a second claim of a row with the same token would look like a refusal.
func openMySQL(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
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
