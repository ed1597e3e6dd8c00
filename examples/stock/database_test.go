package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDatabaseName(t *testing.T) {
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

func TestDatabaseThatCannotBeOpened(t *testing.T) {
	for _, dsn := range []string{"mysql://%zz", "ann@tcp(db.example)/shop?parseTime=perhaps", t.TempDir()} {
		_, err := openStore(t.Context(), dsn)
		require.ErrorContains(t, err, "database: ", dsn)
	}
}

// A second process finds the tables there and the rows in them, and neither file
// name nor folder is taken for a part of a URL.
func TestDatabaseOpensAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "100% stock?.db")
	first, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	require.NoError(t, first.reset(t.Context(), goods, 100))
	require.FileExists(t, file)

	second, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	requireStore(t, second, 100, 0)
}
