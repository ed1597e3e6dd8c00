package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// movedBounds raises the servers' bounds of session timeouts, and lowers them again, by rolling restarts.
//
// Raised bounds excuse no violation. Sessions get the longer timeout at their next handshake, but a new leader gives them
// the timeout of their creation: SessionTrackerImpl starts from ZKDatabase.sessionsWithTimeouts, which createSession
// transactions fill. Leaders are killed meanwhile.
//
// Lowered bounds would break any client's arithmetic if a handshake's answer is lost: reopenSession has the leader move
// the expiry to now + the lower timeout (ExpiryQueue.update takes an earlier time as well as a later one) before the client
// hears of it. What is promised is to survive lowering in steps of a quarter, with a rest between two of them. For then:
//
//   - Whoever comes to a server after its restart knows of T at most, and the server gives it 3T/4 from then on, T being
//     the bound of the step before. What it has committed was sent before, and is trusted for 2T/3: T/12 are left, heard
//     or not.
//   - Or it has not been there for a whole step, knows of 4T/3, and has committed nothing for so long: its trust of 8T/9
//     ends before the rest, of T/3, and 3T/4 are over.
//
// A list of active sessions that names a server's own, higher timeout only makes the expiry later.
const movedBounds = "session bounds raised and lowered"

const loweringSteps = 3

// raisedTimeout is the session timeout while the bounds are raised. It has to be high enough that a new leader, after
// its election, exposes a holder who trusts 2/3 of it.
const raisedTimeout = SessionTimeout * 4 * 4 * 4 / (3 * 3 * 3)

// ordinaryBounds are those at the beginning and at the end of each run.
func ordinaryBounds() map[string]string { return boundsOf(0, SessionTimeout) }

// boundsOf are settings for sessions of least, 0 being the servers' own choice, to most.
func boundsOf(least, most time.Duration) map[string]string {
	bounds := map[string]string{"minSessionTimeout": "", "maxSessionTimeout": strconv.FormatInt(most.Milliseconds(), 10)}
	if least > 0 {
		bounds["minSessionTimeout"] = strconv.FormatInt(least.Milliseconds(), 10)
	}
	return bounds
}

// moveBounds ends as the whole as it began, which takes about as long as a bout.
func moveBounds(ctx, whole context.Context, n *Nemesis, r *rand.Rand) error {
	err := n.bound(whole, r, boundsOf(raisedTimeout, raisedTimeout))
	for range raisedKills {
		if err != nil {
			return err
		}
		pause(ctx, n.timeout/2) // sessions get the new timeout, and new sessions are created
		err = n.killLeaderInSilence(ctx, whole, r)
	}
	for step, most := 0, time.Duration(raisedTimeout); step < loweringSteps && err == nil; step++ {
		pause(whole, most/3)
		most = max(most*3/4, SessionTimeout)
		err = n.bound(whole, r, boundsOf(0, most))
	}
	return err
}

// raisedKills is how many leaders are killed while the bounds are raised.
const raisedKills = 3

// killLeaderInSilence kills the leader right after half of the clients fall silent, until their sessions expire by either
// timeout. Only the logs show the next leader how long these sessions live.
func (n *Nemesis) killLeaderInSilence(ctx, whole context.Context, r *rand.Rand) error {
	for i, c := range n.clients {
		if i%2 != r.IntN(2) {
			continue
		}
		c.harmed.Lock()
		defer c.harmed.Unlock()
		for _, line := range c.lines {
			line.Hold()
		}
		defer c.release()
		end := n.note(silentToAll, c.proc, "")
		defer end(true)
	}
	err := killLeader(ctx, whole, n, r)
	if err == nil {
		err = n.serving(whole)
	}
	pause(ctx, raisedTimeout)
	return err
}

// bound is a rolling restart with other bounds.
func (n *Nemesis) bound(ctx context.Context, r *rand.Rand, bounds map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	order := r.Perm(len(n.servers.Servers()))
	for _, i := range order {
		if err := n.servers.Configure(ctx, i, bounds); err != nil {
			return err
		}
	}
	return n.servers.RollingRestart(ctx, nil, order...)
}

// withBounds adds bounds to the settings of servers that are still to be started.
func withBounds(cfg ensemble.Config, bounds map[string]string) ensemble.Config {
	for key, value := range bounds {
		if value != "" {
			cfg.Properties[key] = value
		}
	}
	return cfg
}
