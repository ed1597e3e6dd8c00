package election_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A latch whose own process ends each term at once does not use up the sequence numbers of its path. A pause follows
// every kind of end of a short term.
func TestShortTermsArePaced(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, client *recipes.Client, term *recipes.Lease){
		"release": func(_ *testing.T, _ *recipes.Client, term *recipes.Lease) { _ = term.Release() },
		"panic":   func(*testing.T, *recipes.Client, *recipes.Lease) { panic("boom") },
		"release and panic": func(_ *testing.T, _ *recipes.Client, term *recipes.Lease) {
			_ = term.Release()
			panic("boom")
		},
		"release in a goroutine": func(_ *testing.T, _ *recipes.Client, term *recipes.Lease) {
			go func() { _ = term.Release() }() // ends at once
		},
		"own znode deleted": func(_ *testing.T, client *recipes.Client, term *recipes.Lease) {
			_ = client.Conn().Delete(term.Path(), -1)
		},
		"revoked": func(t *testing.T, client *recipes.Client, term *recipes.Lease) {
			t.Helper()
			if err := revoke.New(client).AttemptRevoke(t.Context(), term.Path()); err != nil {
				t.Error(err)
			}
			select {
			case <-term.Revoked():
			case <-term.Context().Done(): // the latch was closed before it reported the term
			}
			_ = term.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				var terms atomic.Int64
				log := srv.Observe()
				l := elections.StartLatch(t, client, latch.WithErrorHandler(func(error) {}), latch.WithListener(latch.Listener{
					IsLeader: func(term *recipes.Lease) {
						if terms.Add(1) <= 1000 { // else it would not end
							end(t, client, term)
						}
					},
				}))
				bubble.Pass(time.Minute)
				require.LessOrEqual(t, log.Count(zktest.OpCreate2), 120, "no loop")
				require.Greater(t, log.Count(zktest.OpCreate2), 2)
				start := time.Now()
				require.NoError(t, l.Close())
				require.Equal(t, start, time.Now(), "Close ends the pause")
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

// A pause follows only a short term, and a latch in a pause does not block others.
func TestPauseAfterAShortTerm(t *testing.T) {
	for name, c := range map[string]struct{ led, pause time.Duration }{
		"short": {time.Second - 1, time.Second},
		"long":  {time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				l, term := elections.Lead(t, testclient.Connect(t, srv))
				bubble.Pass(c.led)
				require.NoError(t, term.Release())
				start := time.Now()
				synctest.Wait()
				require.NoError(t, l.Err())
				if c.pause > 0 {
					require.Empty(t, elections.Paths(srv))
					require.Empty(t, l.Path())
				}
				elections.Await(t, l)
				require.GreaterOrEqual(t, time.Since(start), c.pause/2)
				require.LessOrEqual(t, time.Since(start), c.pause*3/2+elections.Tick)
			})
		})
	}
}

// A short term that ends with its session was not ended by this process. The latch joins again as soon as there is
// another session.
func TestNoPauseAfterALostSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, term := elections.Lead(t, client)
		for range 5 {
			log := srv.Observe()
			srv.Expire(elections.SessionOf(client))
			require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSessionLost)
			term = elections.Await(t, l)
			connected := log.Requests(zktest.OpConnect)
			last := connected[len(connected)-1].Time
			require.Less(t, time.Since(last), 100*time.Millisecond, "no pause once there is a session")
		}
	})
}
