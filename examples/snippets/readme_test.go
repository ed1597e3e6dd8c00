package snippets

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStopsWhenTheLockIsLost(t *testing.T) {
	server := zktest.NewServer(t) // a ZooKeeper inside the test process
	client := zkclient.Connect(t, server)
	lock, err := mutex.New(client, "/locks/goods/1001")
	require.NoError(t, err)

	err = lock.Do(t.Context(), func(ctx context.Context, _ *recipes.Lease) error {
		server.Expire(client.Conn().SessionID()) // the session is lost in the middle of the work
		<-ctx.Done()                             // does your code stop?
		return ctx.Err()
	})
	require.ErrorIs(t, err, recipes.ErrSessionLost)
}

// stock returns a database with two items.
func stock(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `CREATE TABLE stock (id, amount, token); INSERT INTO stock VALUES (1001, 2, 0)`)
	require.NoError(t, err)
	return db
}

func lockOn(t *testing.T, client *recipes.Client, path string) *mutex.InterProcessMutex {
	t.Helper()
	lock, err := mutex.New(client, path)
	require.NoError(t, err)
	return lock
}

func TestLead(t *testing.T) {
	server := zktest.NewServer(t)
	db := stock(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- lead(ctx, zkclient.Connect(t, server), db) }()
	require.Eventually(t, func() bool {
		var token int64
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT token FROM stock`).Scan(&token))
		return token > 0
	}, 10*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	server.RequireIdle(t)
}
