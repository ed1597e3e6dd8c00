package election_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	// operationTimeout bounds Close.
	operationTimeout = 5 * time.Second
	// shortTimeout does where the line is held.
	shortTimeout = 500 * time.Millisecond
)

// stage is a member whose line a test can hold, in an election of its own.
type stage struct {
	recipe
	path    string
	proxy   *faultproxy.Proxy
	client  *recipes.Client
	rival   *member // leads in another session, if present
	subject *member
}

// phases are the moments at which Close may be called. Each starts the member and takes it there. If the line is held
// then, the result releases it.
var phases = []struct {
	name  string
	rival bool
	held  bool
	reach func(t *testing.T, s *stage) (release func())
}{
	{"not started", false, false, func(*testing.T, *stage) func() { return nil }},
	{"create on its way", false, true, holding(faultproxy.Creates(), (*faultproxy.Proxy).HoldRequest)},
	{"create unanswered", false, true, holding(faultproxy.Op("create2"), (*faultproxy.Proxy).HoldReply)},
	{"answer of create lost", false, false, func(t *testing.T, s *stage) func() {
		t.Helper()
		lost := s.proxy.DropReply(faultproxy.Op("create2"), 1)
		require.NoError(t, s.subject.Start())
		arrival(t, lost.Done())
		return nil
	}},
	{"queue read", false, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		var n atomic.Int32 // the first answer reports that the directory is missing
		return holding(func(r faultproxy.Request) bool { return r.Op == "getChildren2" && n.Add(1) == 2 }, (*faultproxy.Proxy).HoldReply)(t, s)
	}},
	{"own znode read, leading", false, true, holding(faultproxy.Op("getData"), (*faultproxy.Proxy).HoldReply)},
	{"own znode read, waiting", true, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		leader, err := s.rival.Leader(t.Context())
		require.NoError(t, err)
		return holding(func(r faultproxy.Request) bool { return r.Op == "getData" && r.Path != leader.Path }, (*faultproxy.Proxy).HoldReply)(t, s)
	}},
	{"leader's znode read", true, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		leader, err := s.rival.Leader(t.Context())
		require.NoError(t, err)
		return holding(faultproxy.OpPath("getData", leader.Path), (*faultproxy.Proxy).HoldReply)(t, s)
	}},
	{"waiting", true, false, waits},
	{"leading", false, false, leads},
	{"stepping down", false, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		require.NoError(t, s.subject.Start())
		lease := s.subject.lead(t)
		arrived, release := s.proxy.HoldRequest(faultproxy.Op("delete"))
		require.NoError(t, lease.Release())
		arrival(t, arrived)
		return release
	}},
	{"waiting, line down", true, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		waits(t, s)
		return down(t, s)
	}},
	{"leading, line down", false, true, func(t *testing.T, s *stage) func() {
		t.Helper()
		leads(t, s)
		return down(t, s)
	}},
	{"session just expired", false, false, func(t *testing.T, s *stage) func() {
		t.Helper()
		leads(t, s)
		s.proxy.Refuse(true) // see Expire
		defer s.proxy.Refuse(false)
		require.NoError(t, zkadmin.Expire(testkit.Context(t), ensemble.Shared(t).Server(0), s.client.Conn().SessionID()))
		return nil
	}},
}

// holding starts the member and holds its line at one step.
func holding(match faultproxy.Match, hold func(*faultproxy.Proxy, faultproxy.Match) (<-chan struct{}, func())) func(*testing.T, *stage) func() {
	return func(t *testing.T, s *stage) func() {
		t.Helper()
		arrived, release := hold(s.proxy, match)
		require.NoError(t, s.subject.Start())
		arrival(t, arrived)
		return release
	}
}

func waits(t *testing.T, s *stage) func() {
	t.Helper()
	require.NoError(t, s.subject.Start())
	testkit.Eventually(t, func() bool { return requests(s.proxy)["getData"] == 2 }, "the member waits")
	return nil
}

func leads(t *testing.T, s *stage) func() {
	t.Helper()
	require.NoError(t, s.subject.Start())
	s.subject.lead(t)
	return nil
}

// down takes the line away.
func down(t *testing.T, s *stage) func() {
	t.Helper()
	s.proxy.Refuse(true)
	s.proxy.Cut()
	reached(t, s.client, recipes.Suspended)
	return func() { s.proxy.Refuse(false) }
}

func arrival(t *testing.T, arrived <-chan struct{}) {
	t.Helper()
	select {
	case <-arrived:
	case <-testkit.Context(t).Done():
		require.FailNow(t, "has not come this far")
	}
}

// Close in each phase returns in time, and leaves no znode and no goroutine. It reports an error if it could not confirm
// the deletion.
func TestClose(t *testing.T) {
	for _, phase := range phases {
		t.Run(phase.name, func(t *testing.T) {
			eachRecipe(t, func(t *testing.T, r recipe) {
				t.Helper()
				path, conn := testkit.Path(t), observer(t)
				var rival *member
				if phase.rival {
					rival = r.enter(t, direct(t), path, "rival")
					led := rival.lead(t).Path()
					testkit.Eventually(t, func() bool { return watchers(t, ensemble.Shared(t), led) == 1 }, "the rival's goroutines are all there")
				}
				others := children(t, conn, path)
				before := goleak.IgnoreCurrent()
				proxy, err := faultproxy.Start(ensemble.Shared(t).Server(0))
				require.NoError(t, err)
				defer proxy.Close()
				limit := operationTimeout
				if phase.held {
					limit = shortTimeout
				}
				client, err := recipes.Connect(testkit.Context(t), []string{proxy.Addr()},
					recipes.WithSessionTimeout(calm), recipes.WithOperationTimeout(limit))
				require.NoError(t, err)
				s := &stage{r, path, proxy, client, rival, r.join(t, client, path, "subject")}

				release := phase.reach(t, s)
				began := time.Now()
				err = s.subject.Close()
				require.Less(t, time.Since(began), limit+3*slack)
				require.False(t, s.subject.HasLeadership())
				if !phase.held {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "still retrying")
					release()
					testkit.Eventually(t, func() bool { return len(children(t, conn, path)) == len(others) }, "the znode is gone")
					testkit.Eventually(t, func() bool { return s.subject.Close() == nil }, "Close knows")
				}
				require.ElementsMatch(t, others, children(t, conn, path), "gone when Close returns")
				s.leaveAgain(t)
				require.ElementsMatch(t, others, children(t, conn, path))
				require.NoError(t, client.Close())
				proxy.Close()
				goleak.VerifyNone(t, before)
			})
		})
	}
}

// leaveAgain makes another member of the same session join, lead if no other member does, and leave.
func (s *stage) leaveAgain(t *testing.T) {
	t.Helper()
	next := s.join(t, s.client, s.path, "next")
	require.NoError(t, next.Start())
	if s.rival == nil {
		next.lead(t)
	}
	require.NoError(t, next.Close())
}
