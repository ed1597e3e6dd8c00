package interop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
	"github.com/zkrecipes/zkrecipes/integration/kazoo"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// slack is what a busy machine and the servers' ticks of 500 ms may add to the life of a session.
const slack = 3 * time.Second

// fault ends the hold of a process whose locks are on the given znodes.
type fault struct {
	name  string
	strip func(v *victim, t *testing.T)
	after time.Duration // the next one has the lock by then
	lives bool          // and hears of it
}

var faults = []fault{
	{"session expired", (*victim).expire, slack, true},
	{"paused", (*victim).pause, short + slack, true},
	{"killed", (*victim).kill, short + slack, false},
}

// TestFaults takes the lock from a process in each language, and checks the effect on waiters in other languages.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, servers []string) *agent.Process{
		"Go":      func(t *testing.T, servers []string) *agent.Process { t.Helper(); return startWorker(t, servers, short) },
		"Curator": func(t *testing.T, servers []string) *agent.Process { t.Helper(); return curator.New(t, servers, short) },
		"kazoo":   func(t *testing.T, servers []string) *agent.Process { t.Helper(); return kazoo.New(t, servers, short) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			process := open(t, theWorld(t).servers.Servers())
			for _, f := range faults {
				t.Run(f.name, func(t *testing.T) {
					v := &victim{language: name, process: process, client: unique("victim"), base: testkit.Path(t)}
					process.Call(t, "connect", v.client)
					takeover(t, v, f)
				})
			}
		})
	}
}

// victim is a process that holds a lock for each waiting language.
type victim struct {
	language string
	process  *agent.Process
	client   string
	base     string
}

// hold takes a lock.
func (v *victim) hold(t *testing.T, waiter language) (*agentContender, string) {
	t.Helper()
	path := v.base + "-" + waiter.name
	c := agentSession{v.process, v.client, nil}
	if v.language == pythonLang.name {
		c.nodes = []string{"curator"}
	}
	holder := c.contender(t, path, "victim").(*agentContender)
	require.NoError(t, holder.lock())
	return holder, path
}

func (v *victim) expire(t *testing.T) {
	t.Helper()
	session := stat(t, queue(t, v.base+"-"+golang.name)[0]).EphemeralOwner
	require.NoError(t, zkadmin.Expire(testkit.Context(t), theWorld(t).servers.Server(0), session))
}

func (v *victim) pause(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { _ = v.process.Resume() }) // a failure here must not hang the next fault
	require.NoError(t, v.process.Pause())
}

func (v *victim) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, v.process.Kill())
}

// hearsOfIt waits until the victim knows about its loss.
func (v *victim) hearsOfIt(t *testing.T, holder *agentContender) {
	t.Helper()
	if v.language == golang.name {
		// The event of the znode, which was deleted with the session, may be first.
		require.Contains(t, []string{recipes.ErrSessionLost.Error(), recipes.ErrNodeDeleted.Error()}, v.process.Do(t, "ended", holder.name))
		return
	}
	v.process.Call(t, "lost", v.client)
}

func takeover(t *testing.T, v *victim, f fault) {
	t.Helper()
	var holders []*agentContender
	var tokens []int64
	var paths []string
	var waiters []contender
	var waits []*attempt
	for _, l := range languages {
		holder, path := v.hold(t, l)
		node := queued(t, path, 1)[0]
		waiter := l.open(t, options{}).contender(t, path, "waiter")
		holders, paths, waiters = append(holders, holder), append(paths, path), append(waiters, waiter)
		tokens = append(tokens, stat(t, node).Czxid)
		waits = append(waits, behind(t, waiter, path, l.name))
	}
	for i, w := range waits {
		w.pending(t, languages[i].name)
	}
	began := time.Now()
	f.strip(v, t)
	for i, w := range waits {
		w.granted(t, languages[i].name)
		took := w.at.Sub(began)
		t.Logf("%s gone: %s holds the lock after %v", v.language, languages[i].name, took.Round(time.Millisecond))
		require.Less(t, took, f.after, languages[i].name)
		queued(t, paths[i], 1)
		if ours, ok := waiters[i].(*goContender); ok {
			require.Greater(t, ours.lease.FencingToken(), tokens[i])
		}
	}
	if f.lives {
		require.NoError(t, v.process.Resume())
		comeback(t, v, holders, paths, waiters)
		return
	}
	for i, w := range waiters {
		require.NoError(t, w.unlock(), languages[i].name)
	}
}

// comeback makes a surviving victim wait for the lock that it lost.
func comeback(t *testing.T, v *victim, holders []*agentContender, paths []string, waiters []contender) {
	t.Helper()
	for i, l := range languages {
		v.hearsOfIt(t, holders[i])
		_ = holders[i].unlock() // the usual reaction of a program; it may return the loss
		require.Len(t, queue(t, paths[i]), 1, "the next one's znode")
		again := behind(t, holders[i], paths[i], v.language)
		require.NoError(t, waiters[i].unlock(), l.name)
		again.granted(t, v.language)
		require.NoError(t, holders[i].unlock())
		queued(t, paths[i], 0)
	}
}
