package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
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
	return client, elections.NewLatch(t, client).Observe(t.Context())
}

func TestObserveReportsTheLeaderAndEachChange(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, recipes.Participant{}, <-seen, "there is no path yet")
		a, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, elections.ParticipantOf(srv, "a", term), <-seen)
		b := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("b"))
		<-b.Decided()
		_, late := watching(t, srv)
		require.Equal(t, []string{"a"}, elections.Told(late), "who leads when the observation begins comes first")
		require.Empty(t, elections.Told(seen), "another waiter changes nothing")

		require.NoError(t, a.Close())
		require.Equal(t, []string{"b"}, elections.Told(seen))
		require.NoError(t, b.Close())
		require.Equal(t, []string{""}, elections.Told(seen))
		require.Equal(t, []string{""}, elections.Told(late), "who has not read for a while misses what is outdated")
	})
}

// A leader whose znode is created between two requests of the observation is seen at once, without a pause of the retry policy.
func TestObserverSeesALeaderThatJoinsMeanwhile(t *testing.T) {
	for name, joinBefore := range map[string]zktest.Op{
		"before the watch on the directory":   zktest.OpExists,
		"before the watch on its first child": zktest.OpGetChildren2,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				other := srv.OpenSession(time.Hour)
				client := testclient.Connect(t, srv, recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: time.Minute, MaxInterval: time.Minute}))
				if joinBefore == zktest.OpGetChildren2 {
					srv.Seed(zktest.Znode{Path: elections.Path})
				}
				requests := 0
				srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == joinBefore && r.Path == elections.Path {
						requests++
						if requests == 1 && joinBefore == zktest.OpExists || requests == 2 && joinBefore == zktest.OpGetChildren2 {
							srv.Seed(zktest.Znode{Path: elections.Path + "/latch-0000000000", Data: []byte("a"), Session: other})
						}
					}
					return zktest.Fault{}
				})
				began := time.Now()
				require.Equal(t, "a", (<-elections.NewLatch(t, client).Observe(t.Context())).ID)
				require.Equal(t, began, time.Now())
				require.NotZero(t, requests)
				log := srv.Observe()
				bubble.Pass(3 * testclient.SessionTimeout)
				require.Zero(t, log.Count(zktest.OpExists, zktest.OpGetChildren2), "the directory is no longer watched")
			})
		})
	}
}

// A leader that leaves between the list and the read is followed by the next one at once, for an observer and for Leader.
func TestObserverOfALeaderThatLeavesMeanwhile(t *testing.T) {
	for name, look := range map[string]func(ctx context.Context, l *latch.LeaderLatch) (recipes.Participant, error){
		"Observe": func(ctx context.Context, l *latch.LeaderLatch) (recipes.Participant, error) {
			return <-l.Observe(ctx), nil
		},
		"Leader": func(ctx context.Context, l *latch.LeaderLatch) (recipes.Participant, error) { return l.Leader(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				other := srv.OpenSession(time.Hour)
				for i, id := range []string{"a", "b"} {
					srv.Seed(zktest.Znode{Path: fmt.Sprintf("%s/latch-%010d", elections.Path, i), Data: []byte(id), Session: other})
				}
				client := testclient.Connect(t, srv, recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: time.Minute, MaxInterval: time.Minute}))
				first := elections.Path + "/latch-0000000000"
				isGone := false
				srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Path == first && !isGone {
						isGone = true
						srv.Delete(first)
					}
					return zktest.Fault{}
				})
				began := time.Now()
				leader, err := look(t.Context(), elections.NewLatch(t, client))
				require.NoError(t, err)
				require.Equal(t, "b", leader.ID)
				require.Equal(t, began, time.Now())
			})
		})
	}
}

func TestSlowObserverGetsTheNewest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		client := testclient.Connect(t, srv)
		for range 20 {
			l, _ := elections.Lead(t, client, latch.WithID("outdated"))
			bubble.Pass(time.Second)
			require.NoError(t, l.Close())
		}
		elections.Lead(t, client, latch.WithID("newest"))
		require.Equal(t, []string{"newest"}, elections.Told(seen))
	})
}

func TestObserverMissesNothingOverAReconnect(t *testing.T) {
	for name, away := range map[string]func(srv *zktest.Server, client *recipes.Client){
		"disconnect": func(srv *zktest.Server, client *recipes.Client) { srv.Disconnect(elections.SessionOf(client)) },
		"partition":  func(srv *zktest.Server, client *recipes.Client) { srv.Partition(elections.SessionOf(client)) },
		"expiry":     func(srv *zktest.Server, client *recipes.Client) { srv.Expire(elections.SessionOf(client)) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client, seen := watching(t, srv)
				require.Equal(t, []string{""}, elections.Told(seen))
				a, _ := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"))
				b := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("b"))
				<-b.Decided()
				require.Equal(t, []string{"a"}, elections.Told(seen))

				away(srv, client)
				bubble.Pass(time.Second)
				srv.Heal()
				bubble.Pass(elections.Timeout)
				require.Empty(t, elections.Told(seen), "the same leader is no news")

				away(srv, client)
				require.NoError(t, a.Close())
				bubble.Pass(time.Second)
				srv.Heal()
				bubble.Pass(elections.Timeout)
				require.Equal(t, []string{"b"}, elections.Told(seen))

				away(srv, client)
				require.NoError(t, b.Close())
				bubble.Pass(time.Second)
				srv.Heal()
				bubble.Pass(elections.Timeout)
				require.Equal(t, []string{""}, elections.Told(seen))
			})
		})
	}
}

func TestObserverOfAWipedPath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, []string{""}, elections.Told(seen))
		srv.Put("/services/other", nil)
		srv.Put(elections.Path+"/config", nil)
		require.Empty(t, elections.Told(seen), "what is no participant does not lead")
		a, _ := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, []string{"a"}, elections.Told(seen))
		require.NoError(t, a.Close())
		require.Equal(t, []string{""}, elections.Told(seen))
		srv.Delete("/services")
		require.Empty(t, elections.Told(seen))
		elections.Lead(t, testclient.Connect(t, srv), latch.WithID("b"))
		require.Equal(t, []string{"b"}, elections.Told(seen))
		for range 10 {
			srv.Delete("/services")
			bubble.Pass(5 * time.Second)
		}
		ids := elections.Told(seen)
		require.Equal(t, "b", ids[len(ids)-1])
	})
}

// What peers write into the leader's znode, as a revocation, is no change of the leader.
func TestObserverDoesNotHearOfData(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, seen := watching(t, srv)
		require.Equal(t, []string{""}, elections.Told(seen))
		_, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"))
		require.Equal(t, []string{"a"}, elections.Told(seen))
		require.NoError(t, revoke.New(testclient.Connect(t, srv)).AttemptRevoke(t.Context(), term.Path()))
		require.Empty(t, elections.Told(seen))
		<-term.Revoked()
		require.NoError(t, term.Context().Err())
		bubble.Pass(time.Second)
		require.NoError(t, term.Release())
		require.Equal(t, []string{"a"}, elections.Told(seen), "its next term")
	})
}

func TestObserveEndsWithItsContextOrItsClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l := elections.NewLatch(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		unread, read, other := l.Observe(ctx), l.Observe(ctx), l.Observe(t.Context())
		require.Equal(t, recipes.Participant{}, <-read)
		bubble.Pass(0)
		cancel()
		for _, seen := range []<-chan recipes.Participant{unread, read, l.Observe(ctx)} {
			values, closed := elections.Collect(seen)
			require.Empty(t, values)
			require.True(t, closed)
		}

		require.NoError(t, l.Close(), "it is not the latch's campaign")
		require.Equal(t, []string{""}, elections.Told(other))
		require.NoError(t, client.Close())
		for _, seen := range []<-chan recipes.Participant{other, l.Observe(t.Context())} {
			values, closed := elections.Collect(seen)
			require.Empty(t, values)
			require.True(t, closed)
		}
	})
}

// Observation needs no server to begin with, and gets over a refusal.
func TestObserverIsPatient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(elections.Path+"/somebody-latch-0000000000", []byte("a"))
		srv.Stop()
		l := elections.NewLatch(t, elections.Open(t, srv))
		seen := l.Observe(t.Context())
		bubble.Pass(time.Minute)
		values, closed := elections.Collect(seen)
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
		bubble.Pass(time.Minute)
		require.Less(t, log.Count(zktest.OpGetChildren2), 100)
		values, closed = elections.Collect(seen)
		require.Empty(t, values)
		require.False(t, closed)
		allow()
		bubble.Pass(5 * time.Second)
		require.Equal(t, []string{"a"}, elections.Told(seen))
	})
}

// Any number of former observers leave a single watch on a path.
func TestObserversLeaveNoWatchesBehind(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, srv *zktest.Server){
		"leader":     func(t *testing.T, srv *zktest.Server) { t.Helper(); elections.Lead(t, testclient.Connect(t, srv)) },
		"nobody":     func(_ *testing.T, srv *zktest.Server) { srv.Put(elections.Path, nil) },
		"no path":    func(*testing.T, *zktest.Server) {},
		"other node": func(_ *testing.T, srv *zktest.Server) { srv.Put(elections.Path+"/config", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				prepare(t, srv)
				client := testclient.Connect(t, srv)
				l := elections.NewLatch(t, client)
				for range testkit.Shorter(25, 5) {
					ctx, cancel := context.WithCancel(t.Context())
					var group sync.WaitGroup
					for range 100 {
						seen := l.Observe(ctx)
						group.Go(func() { <-seen }) // ends with the first leader; joined below
					}
					group.Wait()
					cancel()
					bubble.Pass(0)
				}
				session, _ := srv.Session(elections.SessionOf(client))
				require.LessOrEqual(t, session.Watches, 1)
				require.LessOrEqual(t, elections.WatchChannels(client.Conn()), 1)
			})
		})
	}
}
