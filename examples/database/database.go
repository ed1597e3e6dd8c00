// Package database opens what the -db flag of the examples names: an SQLite file, or a
// MySQL or MariaDB server.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

// DB is a database, and what it is called.
type DB struct {
	*sql.DB

	Kind string // for reports
}

// Open opens the database that dsn names: an SQLite file, or
// mysql://user:password@host:port/name, or what go-sql-driver calls a DSN. It creates
// the tables, with statements that do so unless they are there. They are written for both
// kinds: KEY stands for a key that numbers itself, NAME for a short text that tells upper
// from lower case, and INSERT NEW for an INSERT that leaves alone what is there.
func Open(ctx context.Context, dsn string, tables ...string) (*DB, error) {
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
	db, err := open(dsn)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, words.Replace(table)); err != nil {
			_ = db.Close()
			return nil, fmt.Errorf("database: create tables: %w", err)
		}
	}
	return &DB{DB: db, Kind: kind}, nil
}

// Found tells whether an UPDATE found its row, whether or not it changed it: Open asks
// MySQL to count the way SQLite does.
func Found(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
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
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // without the URL, which has the password
		}
		if _, isEscape := errors.AsType[url.EscapeError](err); isEscape {
			err = errors.New("an invalid escape: write % as %25")
		}
		return nil, err
	}
	// The driver knows its parameters, such as tls, and takes the name for the certificate from the address.
	cfg, err := mysql.ParseDSN("tcp(" + u.Host + ")/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	return cfg, nil
}
