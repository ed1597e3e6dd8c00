package database

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestName(t *testing.T) {
	for _, tt := range []struct {
		dsn   string
		mysql bool
		net   string
		addr  string
	}{
		{dsn: "stock.db"},
		{dsn: "/var/lib/stock@home/stock.db"},
		{dsn: "mysql://ann:secret@db.example:3306/shop", mysql: true, net: "tcp", addr: "db.example:3306"},
		{dsn: "mysql://ann:secret@tcp(db.example:3306)/shop", mysql: true, net: "tcp", addr: "db.example:3306"},
		{dsn: "ann:secret@tcp(db.example:3306)/shop?tls=true", mysql: true, net: "tcp", addr: "db.example:3306"},
		{dsn: "ann:secret@unix(/run/mysqld.sock)/shop", mysql: true, net: "unix", addr: "/run/mysqld.sock"},
	} {
		t.Run(tt.dsn, func(t *testing.T) {
			require.Equal(t, tt.mysql, isMySQL(tt.dsn))
			if !tt.mysql {
				return
			}
			cfg, err := mysqlConfig(tt.dsn)
			require.NoError(t, err)
			require.Equal(t, []string{"ann", "secret", tt.net, tt.addr, "shop"},
				[]string{cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName})
		})
	}
}

// The parameters of a URL are those of the driver.
func TestParametersOfAURL(t *testing.T) {
	cfg, err := mysqlConfig("mysql://ann:se%25cret@db.example/shop?tls=true&timeout=3s")
	require.NoError(t, err)
	require.Equal(t, "se%cret", cfg.Passwd)
	require.Equal(t, "db.example:3306", cfg.Addr)
	require.Equal(t, "db.example", cfg.TLS.ServerName)
	require.Equal(t, 3*time.Second, cfg.Timeout)
	cfg, err = mysqlConfig("mysql://ann:secret@db.example/shop")
	require.NoError(t, err)
	require.Nil(t, cfg.TLS)
	_, err = mysqlConfig("mysql://ann:secret@db.example/shop?tls=perhaps")
	require.Error(t, err)
}

// An error of a URL does not have its password.
func TestErrorWithoutPassword(t *testing.T) {
	for _, dsn := range []string{"mysql://ann:se%cret@db.example/shop", "mysql://ann:secret@db.example:port/shop", "mysql://ann:secret@db.example/shop?tls=perhaps"} {
		_, err := Open(t.Context(), dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "cret", dsn)
	}
}

func TestThatCannotBeOpened(t *testing.T) {
	for _, dsn := range []string{"mysql://%zz", "ann@tcp(db.example)/shop?parseTime=perhaps", t.TempDir()} {
		_, err := Open(t.Context(), dsn, `CREATE TABLE IF NOT EXISTS a (id KEY)`)
		require.ErrorContains(t, err, "database: ", dsn)
	}
}

// What Open prepares may be prepared already, and stays as it is.
func TestOpensAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "100% a?.db")
	tables := []string{
		`CREATE TABLE IF NOT EXISTS a (id KEY, name NAME UNIQUE, n INTEGER)`,
		`INSERT NEW INTO a (name, n) VALUES ('one', 1)`,
	}
	first, err := Open(t.Context(), file, tables...)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	require.Equal(t, "SQLite", first.Kind)
	require.FileExists(t, file)
	found, err := Found(first.ExecContext(t.Context(), `UPDATE a SET n = 2 WHERE name = 'one'`))
	require.NoError(t, err)
	require.True(t, found)
	found, err = Found(first.ExecContext(t.Context(), `UPDATE a SET n = 2 WHERE name = 'ONE'`))
	require.NoError(t, err)
	require.False(t, found, "case matters")

	second, err := Open(t.Context(), file, tables...)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	var n int
	require.NoError(t, second.QueryRowContext(t.Context(), `SELECT n FROM a`).Scan(&n))
	require.Equal(t, 2, n)
}
