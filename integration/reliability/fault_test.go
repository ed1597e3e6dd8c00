package reliability_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// fault is something that happens to servers or lines.
type fault struct {
	name string
	// target chooses the server of the n-th such fault, to which its holders are connected.
	target func(ctx context.Context, t *testing.T, e *ensemble.Ensemble, n int) int
	strike func(ctx context.Context, t *testing.T, s *scene)
	heal   func(ctx context.Context, t *testing.T, s *scene)
}

// scene is where one fault happens.
type scene struct {
	e       *ensemble.Ensemble
	timeout time.Duration // of the sessions
	node    int           // the affected server; anywhere: another one for each pair
	pairs   []*pair
	random  *rand.Rand
	healed  bool
}

// strike injects the fault. A failed round leaves no fault to the next one.
func (s *scene) strike(ctx context.Context, t *testing.T, kind fault) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if t.Failed() {
			s.tell(ctx, t)
		}
		if !s.healed {
			s.heal(ctx, t, kind)
		}
	})
	kind.strike(ctx, t, s)
}

// tell prints the servers' recent log lines about their quorum.
func (s *scene) tell(ctx context.Context, t *testing.T) {
	t.Helper()
	const enough = 40
	t.Log("now", time.Now().UTC().Format("15:04:05.000"))
	for node := range 3 {
		logs, err := s.e.Logs(ctx, node)
		lines := slices.DeleteFunc(strings.Split(logs, "\n"), func(line string) bool { return !strings.Contains(line, "QuorumPeer") })
		t.Logf("node %d (%v):\n%s", node, err, strings.Join(lines[max(0, len(lines)-enough):], "\n"))
	}
}

// heal ends the fault, and returns when all servers serve.
func (s *scene) heal(ctx context.Context, t *testing.T, kind fault) {
	t.Helper()
	s.healed = true
	kind.heal(ctx, t, s)
	require.NoError(t, s.e.WaitServing(ctx))
}

// nothing heals a fault that ends by itself.
func nothing(context.Context, *testing.T, *scene) {}

// anywhere is the target of a fault that hits no server in particular.
const anywhere = -1

func everywhere(context.Context, *testing.T, *ensemble.Ensemble, int) int { return anywhere }

func theLeader(ctx context.Context, t *testing.T, e *ensemble.Ensemble, _ int) int {
	t.Helper()
	leader, err := e.Leader(ctx)
	require.NoError(t, err)
	return leader
}

func aFollower(ctx context.Context, t *testing.T, e *ensemble.Ensemble, n int) int {
	t.Helper()
	return (theLeader(ctx, t, e, n) + 1 + n%2) % 3
}

// aFollowerOrTheLeader takes followers first.
func aFollowerOrTheLeader(ctx context.Context, t *testing.T, e *ensemble.Ensemble, n int) int {
	t.Helper()
	if n%2 == 1 {
		return theLeader(ctx, t, e, n)
	}
	return aFollower(ctx, t, e, n)
}

// at is the server that the i-th pair's holder is on.
func (s *scene) at(i int) int {
	if s.node == anywhere {
		return i % 3
	}
	return s.node
}

// each does something to several servers at once.
func each(t *testing.T, nodes []int, do func(node int) error) {
	t.Helper()
	errs := make([]error, len(nodes))
	var all sync.WaitGroup // each ends with its context; joined here
	for i, node := range nodes {
		all.Go(func() { errs[i] = do(node) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// restartAll kills servers and restarts them after some time.
func (s *scene) restartAll(ctx context.Context, t *testing.T, down time.Duration, nodes ...int) {
	t.Helper()
	each(t, nodes, func(node int) error { return s.e.Kill(ctx, node) })
	pass(ctx, down)
	each(t, nodes, func(node int) error { return s.e.StartNode(ctx, node) })
}

func isolate(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.Isolate(ctx, s.node))
}

func rejoin(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.Heal(ctx, s.node))
}

func freeze(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.Pause(ctx, s.node))
}

func thaw(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.Unpause(ctx, s.node))
}

// powerOff disconnects a server from all others in one moment; no socket is closed.
func powerOff(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	_, err := s.e.Exec(ctx, s.node, "sh", "-c", "iptables -P OUTPUT DROP && iptables -P INPUT DROP")
	require.NoError(t, err)
}

// boot starts the server afresh.
func boot(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	s.restartAll(ctx, t, 0, s.node)
}
