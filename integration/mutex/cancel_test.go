package mutex_test

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// atOnce bounds the time in which Acquire notices the end of its context, and undone the life of its znode after
// that. A busy machine takes its time, but longSession is far longer.
const (
	atOnce = 5 * time.Second
	undone = 5 * time.Second
)

// step is a moment of Acquire at which its context ends.
type step struct {
	name string
	held bool // another client holds the lock meanwhile
	// stop makes the line stop there. reached is closed when it stops, and heal continues it. holder is the path of
	// the holder's znode, if any.
	stop stopper
}

// stopper is a step's stop.
type stopper func(p *faultproxy.Proxy, holder string) (reached <-chan struct{}, heal func())

func atRequest(match faultproxy.Match) stopper {
	return func(p *faultproxy.Proxy, _ string) (<-chan struct{}, func()) { return p.HoldRequest(match) }
}

func atReply(match faultproxy.Match) stopper {
	return func(p *faultproxy.Proxy, _ string) (<-chan struct{}, func()) { return p.HoldReply(match) }
}

// atRead stops at a read of the holder's znode or, with own, of another one.
func atRead(ofHolder bool, hold func(*faultproxy.Proxy, faultproxy.Match) (<-chan struct{}, func())) stopper {
	return func(p *faultproxy.Proxy, holder string) (<-chan struct{}, func()) {
		return hold(p, func(r faultproxy.Request) bool {
			return r.Op == "getData" && strings.Contains(r.Path, "-lock-") && strings.HasSuffix(r.Path, holder) == ofHolder
		})
	}
}

// atSecond stops at the second answer of its kind. In a missing directory, the first one reports that.
func atSecond(op string) stopper {
	return func(p *faultproxy.Proxy, _ string) (<-chan struct{}, func()) {
		var n atomic.Int32
		return p.HoldReply(func(r faultproxy.Request) bool { return r.Op == op && n.Add(1) == 2 })
	}
}

func afterLostCreate(stop stopper) stopper {
	return func(p *faultproxy.Proxy, holder string) (<-chan struct{}, func()) {
		p.DropReply(faultproxy.Op("create2"), 1)
		return stop(p, holder)
	}
}

// stepsOfTry are the requests of TryAcquire in order, each before and after its execution by the server. A held
// answer delays all later ones.
func stepsOfTry() []step {
	return []step{
		{"create in a missing directory, request", false, atRequest(faultproxy.Op("create2"))},
		{"create in a missing directory, answer", false, atReply(faultproxy.Op("create2"))},
		{"parent, request", false, atRequest(faultproxy.Op("createContainer"))},
		{"parent, answer", false, atReply(faultproxy.Op("createContainer"))},
		{"create, answer", false, atSecond("create2")},
		{"create behind a holder, request", true, atRequest(faultproxy.Op("create2"))},
		{"create behind a holder, answer", true, atReply(faultproxy.Op("create2"))},
		{"search after a lost answer, sync", true, afterLostCreate(atReply(faultproxy.Op("sync")))},
		{"search after a lost answer, list", true, afterLostCreate(atReply(faultproxy.Op("getChildren2")))},
		{"own read after a lost answer, request", true, afterLostCreate(atRead(false, (*faultproxy.Proxy).HoldRequest))},
		{"own read after a lost answer, answer", true, afterLostCreate(atRead(false, (*faultproxy.Proxy).HoldReply))},
		{"listing, request", true, atRequest(faultproxy.Op("getChildren2"))},
		{"listing, answer", true, atReply(faultproxy.Op("getChildren2"))},
		{"listing, answer, lock free", false, atSecond("getChildren2")},
	}
}

// steps are those of Acquire.
func steps() []step {
	return append(stepsOfTry(), []step{
		{"watch on the one ahead, request", true, atRead(true, (*faultproxy.Proxy).HoldRequest)},
		{"watch on the one ahead, answer", true, atRead(true, (*faultproxy.Proxy).HoldReply)},
		{"watch on the own znode, request", true, atRead(false, (*faultproxy.Proxy).HoldRequest)},
		{"watch on the own znode, answer", true, atRead(false, (*faultproxy.Proxy).HoldReply)},
		{"the wait for a connection", true, func(p *faultproxy.Proxy, _ string) (<-chan struct{}, func()) {
			p.Refuse(true)
			p.Cut()
			return closed(), func() { p.Refuse(false) }
		}},
		{"the wait between two attempts", true, func(p *faultproxy.Proxy, _ string) (<-chan struct{}, func()) {
			p.Refuse(true)
			return p.DropReply(faultproxy.Op("create2"), 1).Done(), func() { p.Refuse(false) }
		}},
	}...)
}

// A cancellation at every step: Acquire returns at once, says why, and leaves no
// znode, whether the line recovers or is cut; the lock works on.
func TestCancelAtEveryStep(t *testing.T) {
	for _, step := range steps() {
		t.Run(step.name, func(t *testing.T) {
			a := newAttempt(t, step)
			a.cancel(t, a.m.Acquire)
			a.requireUndone(t)
		})
		t.Run(step.name+", then a cut", func(t *testing.T) {
			a := newAttempt(t, step)
			a.cancel(t, a.m.Acquire)
			a.proxy.Cut()
			a.requireUndone(t)
		})
	}
}

// The same with a deadline.
func TestDeadlineAtEveryStep(t *testing.T) {
	for _, step := range steps() {
		t.Run(step.name, func(t *testing.T) {
			a := newAttempt(t, step)
			for limit := 100 * time.Millisecond; ; limit *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err := a.m.Acquire(ctx)
				deadline, _ := ctx.Deadline()
				late := time.Since(deadline)
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Less(t, late, atOnce)
				select {
				case <-a.reached:
				default:
					require.Less(t, limit, patience, "the step is not reached")
					continue // this machine is slow: again with more time
				}
				break
			}
			a.requireUndone(t)
		})
	}
}

// TryAcquire has the same steps but the wait.
func TestCancelOfTry(t *testing.T) {
	for _, step := range stepsOfTry() {
		t.Run(step.name, func(t *testing.T) {
			a := newAttempt(t, step)
			a.cancel(t, a.m.TryAcquire)
			a.requireUndone(t)
		})
	}
}

// attempt is what a step is tried on.
type attempt struct {
	path    string
	client  *recipes.Client
	proxy   *faultproxy.Proxy
	m       *mutex.InterProcessMutex
	holder  *recipes.Lease // nil: the lock is free
	reached <-chan struct{}
	heal    func()
}

func newAttempt(t *testing.T, step step) *attempt {
	t.Helper()
	a := &attempt{path: testkit.Path(t)}
	// Long enough for a line that hangs not to be cut.
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	a.client, a.proxy, a.m = client, proxy, newMutex(t, client, a.path)
	holder := ""
	if step.held {
		a.holder = acquire(t, newMutex(t, direct(t), a.path))
		holder = path.Base(a.holder.Path())
	}
	a.reached, a.heal = step.stop(proxy, holder)
	t.Cleanup(a.heal)
	return a
}

// cancel calls acquire, and cancels it when the step is reached.
func (a *attempt) cancel(t *testing.T, acquire func(context.Context) (*recipes.Lease, error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan result, 1)
	go func() {
		lease, err := acquire(ctx)
		done <- result{lease, err}
	}()
	select {
	case <-a.reached:
	case <-testkit.Context(t).Done():
		require.Fail(t, "the step is not reached")
	}
	cancel(errOfTest)
	ended := time.Now()
	_, err := outcome(t, done)
	require.Less(t, time.Since(ended), atOnce, "Acquire waits for what is on the line")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errOfTest, "the cause as well")
}

// requireUndone heals the line and requires the attempt's znode to go in time, if
// ever it was made, and the lock to work.
func (a *attempt) requireUndone(t *testing.T) {
	t.Helper()
	a.heal()
	// The line keeps the order, so this answer shows that the server executed all earlier requests of the attempt.
	testkit.Eventually(t, func() bool {
		_, _, err := a.client.Conn().Exists("/")
		return err == nil
	}, "the connection")
	expected := 0
	if a.holder != nil {
		expected = 1
	}
	require.Eventually(t, func() bool { return len(children(t, a.path)) == expected }, undone, 5*time.Millisecond, "a ghost")
	if a.holder != nil {
		require.NoError(t, a.holder.Context().Err())
		require.NoError(t, a.holder.Release())
	}
	require.NoError(t, acquire(t, newMutex(t, a.client, a.path)).Release())
	require.Empty(t, children(t, a.path))
}

func closed() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
