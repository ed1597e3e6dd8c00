package reliability_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	pausedTimeout = 8 * time.Second // of the sessions of processes that are paused
	// pauseLasts is most of what a lease is trusted without a proof.
	pauseLasts = pausedTimeout * 6 / 10
	// afresh is the greatest age of the latest proof at the stop, because trust must last until the process resumes.
	afresh = pausedTimeout / 30
	// proofCounts is how long the server runs after it answered the first heartbeat.
	proofCounts = 5 * time.Millisecond
	// pauseTries bounds the repetitions of a round that was too slow, because the machine may be busy.
	pauseTries = 5
)

// seldom are ticks with which a server reports its active sessions to the leader every T/16. A cut 5 ms after an event
// usually precedes the next report.
var seldom = ensemble.Config{Nodes: 3, TickTime: pausedTimeout / 8, Properties: map[string]string{"syncLimit": "4", "initLimit": "4"}}

// TestPauseShorterThanTheSession stops a process for 0.6 T. After it resumes, its first heartbeat is committed and
// answered, and then its server loses the others before it reports the session as active. The session expires according
// to the reports before the stop. The holder's context ends before that.
func TestPauseShorterThanTheSession(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, seldom)
	var distances []time.Duration
	for n := range *rounds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for range pauseTries {
				if distance, hit := pauseBriefly(t, e, n); hit {
					distances = append(distances, distance)
					require.Positive(t, distance, "the grant came before the loss")
					return
				}
			}
			require.Fail(t, "the lease has always ended before the proof came")
		})
	}
	summarize(t, "stopped for 0.6 T, cut off after the next heartbeat", distances)
}

// pauseBriefly is one round. It returns the time from the loss to the grant, and whether the lease was still valid at
// the cut.
func pauseBriefly(t *testing.T, e *ensemble.Ensemble, n int) (distance time.Duration, hit bool) {
	t.Helper()
	ctx := bounded(t, 10*pausedTimeout)
	s := &scene{e: e, node: aFollower(ctx, t, e, n)}
	p := startWorker(t, workByTheRules, pausedTimeout, 2, []string{e.Server(s.node)})
	p.await(t, others(e, s.node))
	apart, err := e.Arm(ctx, s.node, "ip link set eth0 down")
	require.NoError(t, err)

	stopped := p.stopAfresh(ctx, t)
	proof := p.nextProof()
	pass(ctx, time.Until(stopped.Add(pauseLasts)))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	proven := moment(ctx, t, proof)
	pass(ctx, proofCounts)
	cutOff := fault{
		strike: func(context.Context, *testing.T, *scene) { require.NoError(t, apart()) },
		heal:   boot,
	}
	s.strike(ctx, t, cutOff)
	cut := time.Now()

	next := granted(ctx, t, p.done)
	ended, cause := p.end(t)
	distance = next.at.Sub(ended)
	t.Logf("proven %v after the pause, cut off %v later; lost %v after the stop, granted %v after it: distance %v",
		proven.Sub(stopped.Add(pauseLasts)).Round(time.Millisecond), cut.Sub(proven).Round(time.Millisecond),
		rounded(ended.Sub(stopped)), rounded(next.at.Sub(stopped)), rounded(distance))
	require.Equal(t, recipes.ErrSessionLost.Error(), cause)
	require.Greater(t, next.lease.FencingToken(), p.token)

	s.heal(ctx, t, cutOff)
	require.NoError(t, next.lease.Release())
	require.NoError(t, p.in.Close())
	require.NoError(t, p.cmd.Wait())
	p.empty(ctx, t)
	return distance, ended.After(cut)
}

// end returns when, and why, the process's lease ended by its own account.
func (p *stoppable) end(t *testing.T) (at time.Time, cause string) {
	t.Helper()
	when, cause, _ := strings.Cut(p.hear(t), " ")
	nanoseconds, err := strconv.ParseInt(when, 10, 64)
	require.NoError(t, err)
	return time.Now().Add(time.Duration(nanoseconds - clock())), cause
}

// stopAfresh stops the process just after a proof, which is its last message to the server.
func (p *stoppable) stopAfresh(ctx context.Context, t *testing.T) (stopped time.Time) {
	t.Helper()
	for {
		at := moment(ctx, t, p.nextProof())
		pass(ctx, afresh/4) // the answer was read
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		stopped = time.Now()
		if stopped.Sub(at) < afresh {
			return stopped
		}
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT)) // this process was kept waiting
	}
}

// nextProof reports the answer to the next heartbeat.
func (p *stoppable) nextProof() <-chan time.Time {
	proof := make(chan time.Time, 1)
	for _, line := range p.lines {
		line.BeforeReply(faultproxy.Op("multi"), func(faultproxy.Request, faultproxy.Reply) {
			select {
			case proof <- time.Now():
			default:
			}
		})
	}
	return proof
}

// moment waits for it.
func moment(ctx context.Context, t *testing.T, comes <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-comes:
		return at
	case <-ctx.Done():
		require.FailNow(t, "it does not come")
		return time.Time{}
	}
}
