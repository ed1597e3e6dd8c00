package elections

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = 30 * time.Second

func TestMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		elected := make(chan string, 10)
		master := func(name string) *Master {
			m, err := NewMaster(zkclient.Connect(t, server, recipes.WithSessionTimeout(session)), func(ctx context.Context) {
				elected <- name
				<-ctx.Done()
				elected <- name + " returned"
			})
			require.NoError(t, err)
			return m
		}
		ann := master("ann")
		require.Equal(t, "ann", <-elected)
		require.True(t, ann.IsMaster())
		bob := master("bob")
		synctest.Wait()
		require.False(t, bob.IsMaster())
		require.NoError(t, ann.Shutdown())
		require.Equal(t, "ann returned", <-elected)
		require.Equal(t, "bob", <-elected)
		require.NoError(t, bob.Shutdown())
	})
}

func elect(t *testing.T, client *recipes.Client) (*latch.LeaderLatch, *recipes.Lease) {
	t.Helper()
	l, err := latch.New(client, "/services/report")
	require.NoError(t, err)
	require.NoError(t, l.Start())
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	<-l.Decided()
	term, _ := l.Leadership()
	return l, term
}

func TestRemainTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		client := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
		ann, _ := elect(t, client)
		bob, _ := elect(t, zkclient.Connect(t, server, recipes.WithSessionTimeout(session)))
		require.Zero(t, RemainTimeToLive(bob))
		require.InDelta(t, session*2/3, RemainTimeToLive(ann), float64(session/6))

		server.Partition(client.Conn().SessionID())
		before := RemainTimeToLive(ann)
		time.Sleep(session / 4) //nolint:forbidigo // virtual time
		require.Equal(t, before-session/4, RemainTimeToLive(ann), "nothing renews it")
		time.Sleep(session / 2) //nolint:forbidigo // virtual time
		require.Zero(t, RemainTimeToLive(ann))
		require.False(t, bob.HasLeadership(), "not before that")
		server.Heal()
	})
}

func TestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "settings.db"))
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `CREATE TABLE setting (name TEXT UNIQUE, value TEXT, version BIGINT);
			INSERT INTO setting VALUES ('limit', '0', 0)`)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		server := zktest.NewServer(t)
		ann, term := elect(t, zkclient.Connect(t, server, recipes.WithSessionTimeout(session)))
		bob, _ := elect(t, zkclient.Connect(t, server, recipes.WithSessionTimeout(session)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, Write(t.Context(), db, term, "1"))

		require.NoError(t, Reelect(bob), "there is nothing to do")
		require.NoError(t, Reelect(ann))
		next, err := bob.Await(ctx)
		require.NoError(t, err)
		require.NoError(t, Write(t.Context(), db, next, "2"))
		require.ErrorIs(t, Write(t.Context(), db, term, "1 again"), ErrStale)
		var value string
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT value FROM setting`).Scan(&value))
		require.Equal(t, "2", value)

		for ann.Path() == "" { // a pause follows her short term; then she stands behind bob
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // virtual time
			synctest.Wait()
		}
		require.NoError(t, Reelect(bob))
		_, err = ann.Await(ctx)
		require.NoError(t, err, "it stands again")
	})
}

func TestTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := zkclient.Connect(t, zktest.NewServer(t), recipes.WithSessionTimeout(session))
		lease, ok, err := TryLock(t.Context(), client, time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		began := time.Now()
		_, ok, err = TryLock(t.Context(), client, time.Minute)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, lease.Release())
	})
}

// someLeader skips times without a leader.
func someLeader(leaders <-chan string) string {
	for leader := range leaders {
		if leader != "" {
			return leader
		}
	}
	return ""
}

func TestRunElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		started := make(chan string, 10)
		leaders := make(chan string, 10)
		run := func(identity string) (stop func() error) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			client := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
			go func() {
				ended <- RunElection(ctx, client, identity, Callbacks{
					OnStartedLeading: func(ctx context.Context) { started <- identity; <-ctx.Done() },
					OnNewLeader:      func(leader string) { leaders <- leader },
				})
			}()
			return func() error { cancel(); return <-ended }
		}
		stopAnn := run("ann")
		require.Equal(t, "ann", <-started)
		require.Equal(t, "ann", someLeader(leaders))
		stopBob := run("bob")
		require.Equal(t, "ann", someLeader(leaders), "what bob sees")
		require.NoError(t, stopAnn())
		require.Equal(t, "bob", <-started)
		require.Equal(t, "bob", someLeader(leaders))
		require.NoError(t, stopBob())
	})
}

func TestCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := zkclient.Connect(t, zktest.NewServer(t), recipes.WithSessionTimeout(session))
		_, err := client.Conn().Create("/report", []byte("0"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		var term *recipes.Lease
		err = Campaign(t.Context(), client, "ann", func(_ context.Context, l *recipes.Lease) error {
			term = l
			return Put(client, l, "/report", []byte("1"))
		})
		require.NoError(t, err)
		require.ErrorIs(t, Put(client, term, "/report", []byte("2")), zk.ErrNoNode)
		data, _, err := client.Conn().Get("/report")
		require.NoError(t, err)
		require.Equal(t, "1", string(data))
	})
}

func TestImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		ann := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
		bob := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
		var tokens []int64
		err := Import(t.Context(), ann, func(_ context.Context, token int64) error {
			began := time.Now()
			err := Import(t.Context(), bob, func(context.Context, int64) error { return errors.New("two holders") })
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
			require.Equal(t, 5*time.Second, time.Since(began))
			tokens = append(tokens, token)
			return nil
		})
		require.NoError(t, err)
		err = Import(t.Context(), bob, func(ctx context.Context, token int64) error {
			tokens = append(tokens, token)
			server.Expire(bob.Conn().SessionID())
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, recipes.ErrSessionLost)
		require.Less(t, tokens[0], tokens[1])
		server.RequireIdle(t)
	})
}

func TestLeadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		ann := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
		bob := zkclient.Connect(t, server, recipes.WithSessionTimeout(session))
		var tokens []int64
		err := LeadOnce(t.Context(), ann, func(lost <-chan struct{}, token int64) error {
			waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := LeadOnce(waiting, bob, func(<-chan struct{}, int64) error { return errors.New("two leaders") })
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
			tokens = append(tokens, token)
			server.Expire(ann.Conn().SessionID())
			<-lost
			return nil
		})
		require.ErrorIs(t, err, recipes.ErrSessionLost)
		require.NoError(t, LeadOnce(t.Context(), bob, func(_ <-chan struct{}, token int64) error {
			tokens = append(tokens, token)
			return nil
		}))
		require.Less(t, tokens[0], tokens[1])
		server.RequireIdle(t)
	})
}
