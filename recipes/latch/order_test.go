package latch_test

import (
	"context"
	"slices"
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
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// scene is a leader whose listener takes time to end, and a waiting latch of another session.
type scene struct {
	t      *testing.T
	srv    *zktest.Server
	client *recipes.Client
	latch  *latch.LeaderLatch
	term   *recipes.Lease
	j      elections.Journal
}

func newScene(t *testing.T, srv *zktest.Server, within func(s *scene), opts ...recipes.Option) *scene {
	t.Helper()
	s := &scene{t: t, srv: srv, client: testclient.Connect(t, srv, opts...)}
	working := latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			s.term = term
			if within != nil {
				within(s)
			}
			<-term.Context().Done()
			s.j.Add("context ended: %v", context.Cause(term.Context()))
			bubble.Pause(elections.Reaction)
			s.j.Add("IsLeader returned")
		},
		NotLeader: func() {
			s.j.Add("NotLeader called")
			bubble.Pause(elections.Reaction)
			s.j.Add("NotLeader returned")
		},
	}
	s.latch = elections.NewLatch(t, s.client, latch.WithID("leader"), latch.WithCloseMode(latch.NotifyLeader))
	remove := s.latch.AddListener(working)
	t.Cleanup(remove) // it is not about later terms
	var once sync.Once
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == elections.SessionOf(s.client) && (r.Op == zktest.OpDelete || r.Op == zktest.OpClose) {
			once.Do(func() { s.j.Add("znode deleted") })
		}
		return zktest.Fault{}
	})
	require.NoError(t, s.latch.Start())
	elections.Await(t, s.latch)
	successor := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("successor"), latch.WithListener(latch.Listener{
		IsLeader: func(*recipes.Lease) { s.j.Add("successor leads") },
	}))
	<-successor.Decided()
	bubble.Pass(time.Second) // both watch their own znodes now
	return s
}

// Guarantee 8 for every end of a term: the context ends, the listeners return, and only then a request that lets a
// successor in reaches the server.
func TestStepDownOrder(t *testing.T) {
	told := []string{"IsLeader returned", "NotLeader called", "NotLeader returned", "znode deleted", "successor leads"}
	silent := []string{"IsLeader returned", "znode deleted", "successor leads"}
	for name, c := range map[string]struct {
		end   func(s *scene)
		cause error
		want  []string
	}{
		"Close":             {func(s *scene) { require.NoError(s.t, s.latch.Close()) }, recipes.ErrReleased, told},
		"CloseWith, notify": {func(s *scene) { require.NoError(s.t, s.latch.CloseWith(latch.NotifyLeader)) }, recipes.ErrReleased, told},
		"CloseWith, silent": {func(s *scene) { require.NoError(s.t, s.latch.CloseWith(latch.Silent)) }, recipes.ErrReleased, silent},
		"term.Release":      {func(s *scene) { require.NoError(s.t, s.term.Release()) }, recipes.ErrReleased, told},
		"Client.Close":      {func(s *scene) { require.NoError(s.t, s.client.Close()) }, recipes.ErrClosed, told},
		"partition, and the session comes back": {func(s *scene) {
			s.srv.Partition(elections.SessionOf(s.client))
			bubble.Pass(elections.Timeout * 3 / 4)
			s.srv.Heal()
		}, recipes.ErrSessionLost, told},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil)
				c.end(s)
				bubble.Pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, c.want...), s.j.Read())
			})
		})
	}
	t.Run("disconnect under the standard policy", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := zktest.NewServer(t)
			s := newScene(t, srv, nil, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
			srv.Disconnect(elections.SessionOf(s.client))
			bubble.Pass(time.Minute)
			require.Equal(t, []string{"context ended: " + recipes.ErrSuspended.Error(), "IsLeader returned", "NotLeader called", "NotLeader returned"}, s.j.Read())
			require.True(t, s.latch.HasLeadership(), "on the same znode")
		})
	})
}

// After a loss that the server decides, nothing can hold back the successor: it may lead while the listeners of the
// old leader still run. The rest of the order holds.
func TestStepDownOrderAfterALoss(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *scene)
		cause error
	}{
		"expiry":        {func(s *scene) { s.srv.Expire(elections.SessionOf(s.client)) }, recipes.ErrSessionLost},
		"znode deleted": {func(s *scene) { s.srv.Delete(s.term.Path()) }, recipes.ErrNodeDeleted},
		"parent wiped":  {func(s *scene) { s.srv.Delete(elections.Path) }, recipes.ErrNodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := newScene(t, srv, nil)
				c.end(s)
				bubble.Pass(time.Second)
				// A wiped parent takes the successor's znode, too: that may lead once more.
				require.ElementsMatch(t, []string{"context ended: " + c.cause.Error(), "successor leads"}, distinct(s.j.Read()))
				bubble.Pass(time.Minute)
				require.Equal(t, []string{"IsLeader returned", "NotLeader called", "NotLeader returned", "znode deleted"}, s.j.Read())
			})
		})
	}
}

func distinct(lines []string) []string { return slices.Compact(slices.Sorted(slices.Values(lines))) }

// Inside any callback of any recipe, every way to step down only requests the step-down.
func TestStepDownAskedForInsideACallback(t *testing.T) {
	told := []string{"IsLeader returned", "NotLeader called", "NotLeader returned", "znode deleted", "successor leads"}
	for name, c := range map[string]struct {
		ask   func(s *scene) error
		cause error
		want  []string
	}{
		"Close":        {func(s *scene) error { return s.latch.Close() }, recipes.ErrReleased, told},
		"CloseWith":    {func(s *scene) error { return s.latch.CloseWith(latch.NotifyLeader) }, recipes.ErrReleased, told},
		"term.Release": {func(s *scene) error { return s.term.Release() }, recipes.ErrReleased, told},
		"Client.Close": {func(s *scene) error { return s.client.Close() }, recipes.ErrClosed, told},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				asked := make(chan struct{})
				s := newScene(t, srv, func(s *scene) {
					bubble.Pause(time.Second)
					start := time.Now()
					if err := c.ask(s); err != nil || time.Since(start) > 0 {
						s.j.Add("%v after %v", err, time.Since(start))
					}
					close(asked)
				})
				<-asked
				bubble.Pass(time.Minute)
				require.Equal(t, append([]string{"context ended: " + c.cause.Error()}, c.want...), s.j.Read())
			})
		})
	}
}
