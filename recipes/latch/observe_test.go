package latch_test

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// watching returns an observer of a session of its own, which takes no part.
func watching(t *testing.T, srv *zktest.Server) (*recipes.Client, <-chan recipes.Participant) {
	t.Helper()
	client := testclient.Connect(t, srv)
	return client, create(t, client).Observe(t.Context())
}

// told waits a moment, and returns the ids that an observer was told meanwhile; nobody is "".
func told(leaders <-chan recipes.Participant) []string {
	pass(100 * time.Millisecond)
	seen, _ := collect(leaders)
	ids := []string{}
	for _, leader := range seen {
		ids = append(ids, leader.ID)
	}
	return ids
}

func TestObserveTellsWhoLeadsAndEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, recipes.Participant{}, <-seen, "there is no path yet")
		a, term := lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, participant(srv, "a", term), <-seen)
		b := enter(t, testclient.Connect(t, srv), latch.WithID("b"))
		<-b.Decided()
		_, late := watching(t, srv)
		require.Equal(t, []string{"a"}, told(late), "who leads when the observation begins comes first")
		require.Empty(t, told(seen), "another waiter changes nothing")

		require.NoError(t, a.Close())
		require.Equal(t, []string{"b"}, told(seen))
		require.NoError(t, b.Close())
		require.Equal(t, []string{""}, told(seen))
		require.Equal(t, []string{""}, told(late), "who has not read for a while misses what is outdated")
	})
}

func TestSlowObserverGetsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		client := testclient.Connect(t, srv)
		for range 20 {
			l, _ := lead(t, client, latch.WithID("outdated"))
			pass(time.Second)
			require.NoError(t, l.Close())
		}
		lead(t, client, latch.WithID("newest"))
		require.Equal(t, []string{"newest"}, told(seen))
	})
}

func TestObserverMissesNothingOverAReconnect(t *testing.T) {
	for name, away := range map[string]func(srv *zktest.Server, client *recipes.Client){
		"disconnect": func(srv *zktest.Server, client *recipes.Client) { srv.Disconnect(sessionOf(client)) },
		"partition":  func(srv *zktest.Server, client *recipes.Client) { srv.Partition(sessionOf(client)) },
		"expiry":     func(srv *zktest.Server, client *recipes.Client) { srv.Expire(sessionOf(client)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client, seen := watching(t, srv)
				require.Equal(t, []string{""}, told(seen))
				a, _ := lead(t, testclient.Connect(t, srv), latch.WithID("a"))
				b := enter(t, testclient.Connect(t, srv), latch.WithID("b"))
				<-b.Decided()
				require.Equal(t, []string{"a"}, told(seen))

				away(srv, client)
				pass(time.Second)
				srv.Heal()
				pass(timeout)
				require.Empty(t, told(seen), "the same leader is no news")

				away(srv, client)
				require.NoError(t, a.Close())
				pass(time.Second)
				srv.Heal()
				pass(timeout)
				require.Equal(t, []string{"b"}, told(seen))

				away(srv, client)
				require.NoError(t, b.Close())
				pass(time.Second)
				srv.Heal()
				pass(timeout)
				require.Equal(t, []string{""}, told(seen))
			})
		})
	}
}

func TestObserverOfAWipedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, []string{""}, told(seen))
		srv.Put("/services/other", nil)
		srv.Put(election+"/config", nil)
		require.Empty(t, told(seen), "what is no participant does not lead")
		a, _ := lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, []string{"a"}, told(seen))
		require.NoError(t, a.Close())
		require.Equal(t, []string{""}, told(seen))
		srv.Delete("/services")
		require.Empty(t, told(seen))
		lead(t, testclient.Connect(t, srv), latch.WithID("b"))
		require.Equal(t, []string{"b"}, told(seen))
		for range 10 {
			srv.Delete("/services")
			pass(5 * time.Second)
		}
		ids := told(seen)
		require.Equal(t, "b", ids[len(ids)-1])
	})
}

// What peers write into the leader's znode, as a revocation, is no change of the leader.
func TestObserverDoesNotHearOfData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, []string{""}, told(seen))
		_, term := lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, []string{"a"}, told(seen))
		require.NoError(t, revoke.New(testclient.Connect(t, srv)).AttemptRevoke(t.Context(), term.Path()))
		require.Empty(t, told(seen))
		<-term.Revoked()
		require.NoError(t, term.Context().Err())
		pass(time.Second)
		require.NoError(t, term.Release())
		require.Equal(t, []string{"a"}, told(seen), "its next term")
	})
}

func TestObserveEndsWithItsContextOrItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l := create(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		unread, read, other := l.Observe(ctx), l.Observe(ctx), l.Observe(t.Context())
		require.Equal(t, recipes.Participant{}, <-read)
		pass(0)
		cancel()
		for _, seen := range []<-chan recipes.Participant{unread, read, l.Observe(ctx)} {
			values, closed := collect(seen)
			require.Empty(t, values)
			require.True(t, closed)
		}

		require.NoError(t, l.Close(), "it is not the latch's campaign")
		require.Equal(t, []string{""}, told(other))
		require.NoError(t, client.Close())
		for _, seen := range []<-chan recipes.Participant{other, l.Observe(t.Context())} {
			values, closed := collect(seen)
			require.Empty(t, values)
			require.True(t, closed)
		}
	})
}

// Observation needs no server to begin with, and gets over a refusal.
func TestObserverIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(election+"/somebody-latch-0000000000", []byte("a"))
		srv.Stop()
		l := create(t, adopt(t, srv))
		seen := l.Observe(t.Context())
		pass(time.Minute)
		values, closed := collect(seen)
		require.Empty(t, values)
		require.False(t, closed)

		allow := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetChildren2 {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.NoError(t, srv.Restart())
		log := srv.Observe()
		pass(time.Minute)
		require.Less(t, log.Count(zktest.OpGetChildren2), 100)
		values, closed = collect(seen)
		require.Empty(t, values)
		require.False(t, closed)
		allow()
		pass(5 * time.Second)
		require.Equal(t, []string{"a"}, told(seen))
	})
}

// Observers that come and go leave one watch on a path between them.
func TestObserversLeaveNoWatchesBehind(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, srv *zktest.Server){
		"leader":     func(t *testing.T, srv *zktest.Server) { t.Helper(); lead(t, testclient.Connect(t, srv)) },
		"nobody":     func(_ *testing.T, srv *zktest.Server) { srv.Put(election, nil) },
		"no path":    func(*testing.T, *zktest.Server) {},
		"other node": func(_ *testing.T, srv *zktest.Server) { srv.Put(election+"/config", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				prepare(t, srv)
				client := testclient.Connect(t, srv)
				l := create(t, client)
				for range testkit.Shorter(25, 5) {
					ctx, cancel := context.WithCancel(t.Context())
					var group sync.WaitGroup
					for range 100 {
						seen := l.Observe(ctx)
						group.Go(func() { <-seen }) // ends with the first leader; joined below
					}
					group.Wait()
					cancel()
					pass(0)
				}
				session, _ := srv.Session(sessionOf(client))
				require.LessOrEqual(t, session.Watches, 1)
				require.LessOrEqual(t, watchChannels(client.Conn()), 1)
			})
		})
	}
}

// watchChannels is how many channels a connection keeps for its watches. Several on one
// path are one watch to the server.
func watchChannels(conn *zk.Conn) (n int) {
	for kinds := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); kinds.Next(); {
		n += kinds.Value().Len()
	}
	return n
}
