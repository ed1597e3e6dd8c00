package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKindOfDatabase(t *testing.T) {
	for dsn, want := range map[string]bool{
		"stock.db":                                  false,
		"/var/lib/stock@home/stock.db":              false,
		"ann:secret@tcp(db.example:3306)/shop":      true,
		"ann:secret@unix(/run/mysqld.sock)/shop":    true,
		"ann:secret@tcp(db.example)/shop?tls=false": true,
	} {
		require.Equal(t, want, isMySQL(dsn), dsn)
	}
}

// An error of a DSN does not have its password.
func TestErrorWithoutPassword(t *testing.T) {
	for _, dsn := range []string{"ann:secret@tcp(db.example)/shop?tls=perhaps", "ann:secret@tcp(db.example)/sh%zz", "ann:secret@tcp(db.example)"} {
		_, _, err := openDB(t.Context(), dsn)
		require.ErrorContains(t, err, "database: ", dsn)
		require.NotContains(t, err.Error(), "secret", dsn)
	}
}

// openDB leaves existing tables unchanged, and case matters in a NAME.
func TestOpenDBAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "100% a?.db")
	tables := []string{
		`CREATE TABLE IF NOT EXISTS a (id KEY, name NAME UNIQUE, n INTEGER)`,
		`INSERT NEW INTO a (name, n) VALUES ('one', 1)`,
	}
	first, kind, err := openDB(t.Context(), file, tables...)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	require.Equal(t, "SQLite", kind)
	require.FileExists(t, file)
	for name, want := range map[string]bool{"one": true, "ONE": false} {
		isFound, err := found(first.ExecContext(t.Context(), `UPDATE a SET n = 2 WHERE name = ?`, name))
		require.NoError(t, err)
		require.Equal(t, want, isFound)
	}

	second, _, err := openDB(t.Context(), file, tables...)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	var n int
	require.NoError(t, second.QueryRowContext(t.Context(), `SELECT n FROM a`).Scan(&n))
	require.Equal(t, 2, n)
}
