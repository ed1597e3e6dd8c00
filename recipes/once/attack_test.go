package once_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// Hosts with wrong clocks run a job under faults, while the servers' clock differs from leader to leader, and an operator
// erases the record now and then. A referee knows the true time, and which functions were called.
func TestWrongClocks(t *testing.T) {
	schedule.Each(t, true, func(t *testing.T, seed uint64) {
		t.Helper()
		testkit.BubbleFor(t, 6*time.Hour, func(t *testing.T) {
			a := newAttack(t, seed)
			a.run()
			if verdict := a.referee.judge(); verdict != "" {
				t.Errorf("seed %d: %s\n%s\nto see it again: go test ./recipes/once -run '^TestWrongClocks$' -schedules 1 -seed %d",
					seed, verdict, strings.Join(a.referee.history, "\n"), seed)
			}
		})
	})
}

const (
	attackTicks  = 8
	attackPeriod = 5 * time.Minute
	attackHosts  = 3
)

// clock is the clock of a host: it is ahead of the true time by before, and from the tick jumpAt on by after.
type clock struct {
	before, after time.Duration
	jumpAt        int
}

func (c clock) at(n int) time.Duration {
	if n < c.jumpAt {
		return c.before
	}
	return c.after
}

// errors of hosts' clocks, right ones the most.
var clockErrors = []time.Duration{
	0, 0, 0, 2 * time.Millisecond, -2 * time.Millisecond, 300 * time.Millisecond, 50 * time.Second, -50 * time.Second,
	70 * time.Second, attackPeriod, -attackPeriod, 24 * time.Hour, -24 * time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour,
}

// attack is one schedule. Only the seed determines its plan.
type attack struct {
	t        *testing.T
	dice     *rand.Rand
	srv      *zktest.Server
	start    time.Time // of the first tick, in true time
	format   func(tick time.Time) string
	options  []once.Option
	deadline time.Duration
	clocks   [attackHosts]clock
	hosts    [attackHosts]*once.Once
	clients  [attackHosts]*recipes.Client
	logs     []*testkit.Log  // of all clients
	skews    []time.Duration // of the servers' clock at each tick
	restarts sync.WaitGroup
	referee  *referee
}

// instants and builds are the formats of occurrences: builds are not compared with any clock.
func instants(tick time.Time) string { return once.At(tick) }

func builds(tick time.Time) string {
	return fmt.Sprint("build-", tick.Unix()/int64(attackPeriod/time.Second))
}

func newAttack(t *testing.T, seed uint64) *attack {
	t.Helper()
	a := &attack{t: t, dice: rand.New(rand.NewPCG(seed, 0)), srv: zktest.NewServer(t, zktest.WithServers(attackHosts)), format: instants}
	a.start = time.Now().Truncate(attackPeriod).Add(attackPeriod)
	isRetried := a.dice.IntN(3) == 0
	if isRetried {
		a.options = append(a.options, once.WithRetry())
	}
	switch a.dice.IntN(4) {
	case 0:
		a.format = builds
	case 1:
		a.deadline = attackPeriod / 2
		a.options = append(a.options, once.WithDeadline(a.deadline))
	}
	a.referee = &referee{format: a.format, isRetried: isRetried, deadline: a.deadline}
	for i := range a.hosts {
		a.clocks[i] = clock{a.drawError(), a.drawError(), a.dice.IntN(2 * attackTicks)}
		a.connect(i)
	}
	skew, isSteady := time.Duration(0), a.dice.IntN(2) == 0
	for range attackTicks + 1 {
		if !isSteady && a.dice.IntN(4) == 0 {
			skew = []time.Duration{0, time.Second, -time.Second, 40 * time.Second, -40 * time.Second, 25 * time.Minute, -25 * time.Minute}[a.dice.IntN(7)]
		}
		a.skews = append(a.skews, skew)
	}
	return a
}

// connect begins a process on a host.
func (a *attack) connect(host int) {
	a.t.Helper()
	log := &testkit.Log{}
	a.logs = append(a.logs, log)
	a.clients[host] = zkclient.ConnectTo(a.t, a.srv, a.srv.Addrs()[host:][:1], recipes.WithID(fmt.Sprint("host-", host)),
		recipes.WithSessionTimeout(30*time.Second), recipes.WithLogger(log.Logger(slog.LevelWarn)))
	var err error
	a.hosts[host], err = once.New(a.clients[host], jobs, a.options...)
	require.NoError(a.t, err)
}

// shutdownTime is longer than any function continues after the end of its context.
const shutdownTime = 20 * time.Second

// restart begins another process on a host, and ends the one before, whose functions may be running.
func (a *attack) restart(host int) {
	a.t.Helper()
	a.srv.Heal()
	client := a.clients[host]
	a.restarts.Go(func() { // joined in run
		a.referee.say("host %d: shutdown", host)
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		err := client.Shutdown(ctx)
		a.referee.say("host %d: shut down: %v", host, err)
	})
	a.connect(host)
}

func (a *attack) drawError() time.Duration { return clockErrors[a.dice.IntN(len(clockErrors))] }

// run calls Do on each host for each tick of the host's own clock.
func (a *attack) run() {
	var all sync.WaitGroup
	for n := range attackTicks {
		at := a.start.Add(time.Duration(n) * attackPeriod)
		pass(time.Until(at) - time.Minute)
		if a.skews[n+1] != a.skews[n] {
			a.srv.ElectLeader()
		}
		a.srv.SetClock(a.skews[n+1])
		a.referee.setSkew(a.skews[n+1])
		if a.dice.IntN(6) == 0 {
			a.restart(a.dice.IntN(attackHosts))
		}
		a.strike()
		if a.dice.IntN(12) == 0 {
			operator := a.hosts[a.dice.IntN(attackHosts)]
			after := a.span(2 * time.Minute)
			all.Go(func() {
				pause(after)
				ctx, cancel := context.WithTimeout(a.t.Context(), attackPeriod)
				defer cancel()
				a.referee.erase(func() error { return operator.Forget(ctx) })
			})
		}
		for i, o := range a.hosts {
			w := work{takes: a.span(20 * time.Second), stops: a.span(shutdownTime / 2), isFailure: a.dice.IntN(5) == 0}
			if a.dice.IntN(10) == 0 {
				w.takes = a.span(3 * attackPeriod)
			}
			late := a.span(2 * time.Second)
			all.Go(func() {
				pause(time.Until(at) + late)
				a.ask(o, i, n, w)
			})
		}
	}
	pass(5 * attackPeriod)
	a.srv.Heal()
	all.Wait()
	a.restarts.Wait()
	pass(time.Minute)
	a.checkIdle()
	for _, log := range a.logs {
		a.referee.checkLog(log.Take())
	}
}

// span returns a random duration. Short and long ones are equally likely.
func (a *attack) span(longest time.Duration) time.Duration {
	if a.dice.IntN(2) == 0 {
		longest /= 20
	}
	return time.Duration(a.dice.Int64N(int64(longest)))
}

// strike begins a fault around a tick.
func (a *attack) strike() {
	client := a.clients[a.dice.IntN(attackHosts)]
	server := a.srv.Addrs()[a.dice.IntN(attackHosts)]
	op := []zktest.Op{zktest.OpMulti, zktest.OpCreate2, zktest.OpGetData, zktest.OpDelete, zktest.OpSetData}[a.dice.IntN(5)]
	n, kind, d := 1+a.dice.IntN(3), a.dice.IntN(12), a.span(time.Minute)
	time.AfterFunc(time.Minute-a.span(time.Second)+a.span(5*time.Second), func() {
		session := client.Conn().SessionID()
		if _, isAlive := a.srv.Session(session); !isAlive {
			return
		}
		a.referee.say("strike %d, %v, %d of %v", kind, d, n, op)
		switch kind {
		case 0:
			a.referee.noteExpiry()
			a.srv.Expire(session)
		case 1:
			a.srv.Disconnect(session)
		case 2:
			a.srv.DropReply(op, n, session)
		case 3:
			a.srv.DropRequest(op, n, session)
		case 4:
			a.srv.Delay(op, d/10, session)
		case 5:
			a.srv.Partition(session)
			time.AfterFunc(d, func() { a.srv.Heal() })
		case 6:
			a.srv.Freeze(server)
			time.AfterFunc(d, func() { a.srv.Heal() })
		case 7, 8:
			a.srv.SlowCommits(d / 20)
			time.AfterFunc(time.Minute, func() { a.srv.SlowCommits(0) })
		}
	})
}

// work is what the function of a Do does.
type work struct {
	takes     time.Duration
	stops     time.Duration // time from the end of the context to the return
	isFailure bool
}

// ask asks for the tick that the host's clock shows.
func (a *attack) ask(o *once.Once, host, n int, w work) {
	off := a.clocks[host].at(n)
	c := &call{host: host, tick: time.Now().Add(off).Round(attackPeriod), isRight: off.Abs() < time.Second}
	ctx, cancel := context.WithTimeout(a.t.Context(), 4*attackPeriod)
	defer cancel()
	a.referee.asked(c)
	c.err = o.Do(ctx, a.format(c.tick), func(ctx context.Context, lease *recipes.Lease) error {
		a.referee.started(c, lease)
		defer a.referee.ended(c)
		select {
		case <-time.After(w.takes):
		case <-ctx.Done():
			pause(w.stops)
		}
		if w.isFailure {
			return errOfWork
		}
		return ctx.Err()
	})
	a.referee.returned(c)
}

// checkIdle counts the requests of an hour in which no host calls anything.
func (a *attack) checkIdle() {
	log := a.srv.Observe()
	defer log.Stop()
	pass(time.Hour)
	if requests := log.Requests(); len(requests) > 0 {
		a.referee.fault("requests of an idle hour: %v", requests)
	}
}

// call is one Do, as the referee sees it.
type call struct {
	host       int
	tick       time.Time
	isRight    bool      // the clock of the host is
	skews      int       // of the servers' clock, before the call
	startedAt  time.Time // zero: the function was not called
	lease      *recipes.Lease
	isRunning  bool
	returnedAt time.Time
	err        error
}

func (c *call) String() string {
	return fmt.Sprintf("host %d: %s", c.host, c.tick.Format(time.DateTime))
}

// isInDoubt reports whether the call may have recorded a start without a run that is not undone yet.
func (c *call) isInDoubt() bool {
	for _, verdict := range []error{once.ErrDone, once.ErrSuperseded, once.ErrTooEarly} {
		if errors.Is(c.err, verdict) {
			return false
		}
	}
	return c.startedAt.IsZero()
}

// span is a time in which the record was, or may have been, erased.
type span struct{ from, to time.Time }

// referee judges what the hosts see, from the true time and from the calls alone:
//
//   - No occurrence starts twice, or with WithRetry again after a Do that returned nil, unless the record was erased in between.
//   - No run overlaps another, unless that one lost its lease, or the servers have just ended a session before its time. A
//     shutdown of the host is no loss.
//   - No instant starts more than maxAhead early, or later than the deadline, by the clock of any leader during the call.
//   - ErrDone is the answer for an occurrence that was started, and ErrSuperseded after a later one. A call that runs nothing
//     returns an error.
//   - A host whose clock is right is neither too early nor superseded before the next tick, if the servers' clock is right.
//   - A client logs superseded occurrences once for each start at most.
type referee struct {
	format    func(time.Time) string
	isRetried bool
	deadline  time.Duration

	mu      sync.Mutex // protects the fields below
	history []string
	faults  []string
	calls   []*call
	erased  []*span
	skews   []time.Duration // of the servers' clock
	expired time.Time       // the latest end of a session before its time, which its client could not know
}

func (r *referee) sayLocked(format string, args ...any) {
	r.history = append(r.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (r *referee) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

func (r *referee) faultLocked(format string, args ...any) {
	r.sayLocked("FAULT: "+format, args...)
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *referee) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faultLocked(format, args...)
}

func (r *referee) setSkew(skew time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skews = append(r.skews, skew)
	r.sayLocked("the servers' clock is ahead by %v", skew)
}

func (r *referee) noteExpiry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired = time.Now()
}

// erase calls forget.
func (r *referee) erase(forget func() error) {
	e := &span{from: time.Now()}
	r.mu.Lock()
	r.erased = append(r.erased, e)
	r.sayLocked("forget")
	r.mu.Unlock()
	err := forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	e.to = time.Now()
	r.sayLocked("forgotten: %v", err)
}

// isErasedLocked reports whether the record may have been erased since t.
func (r *referee) isErasedLocked(t time.Time) bool {
	return slices.ContainsFunc(r.erased, func(e *span) bool { return e.to.IsZero() || !e.to.Before(t) })
}

func (r *referee) asked(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.skews = len(r.skews) - 1
	r.calls = append(r.calls, c)
	r.sayLocked("%v: asked", c)
}

func (r *referee) ended(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.isRunning = false
	r.sayLocked("%v: ended", c)
}

func (r *referee) started(c *call, lease *recipes.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.startedAt, c.lease, c.isRunning = time.Now(), lease, true
	r.sayLocked("%v: started", c)
	for _, other := range r.calls {
		if other != c && other.isRunning && time.Since(r.expired) > time.Minute {
			if cause := context.Cause(other.lease.Context()); cause == nil || errors.Is(cause, recipes.ErrClosed) {
				r.faultLocked("%v: started while %v runs (%v)", c, other, cause)
			}
		}
		switch {
		case other == c || other.startedAt.IsZero() || r.format(other.tick) != r.format(c.tick):
		case !r.isRetried && !r.isErasedLocked(other.startedAt):
			r.faultLocked("%v: started a second time", c)
		case r.isRetried && !other.returnedAt.IsZero() && other.err == nil && !r.isErasedLocked(other.returnedAt):
			r.faultLocked("%v: started after a success", c)
		}
	}
	if _, err := time.Parse(time.RFC3339, r.format(c.tick)); err != nil {
		return
	}
	early, late := c.tick.Sub(c.startedAt.Add(slices.Max(r.skews[c.skews:]))), c.startedAt.Add(slices.Min(r.skews[c.skews:])).Sub(c.tick)
	if early > maxAhead {
		r.faultLocked("%v: started %v early", c, early)
	}
	if r.deadline > 0 && late > r.deadline+time.Millisecond {
		r.faultLocked("%v: started %v late", c, late)
	}
}

func (r *referee) returned(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.returnedAt = time.Now()
	r.sayLocked("%v: returned %v", c, c.err)
	isSteady := slices.Max(r.skews) == 0 && slices.Min(r.skews) == 0
	isDue := !c.returnedAt.Before(c.tick.Add(attackPeriod - maxAhead - time.Second)) // the next tick
	switch {
	case c.startedAt.IsZero() && c.err == nil:
		r.faultLocked("%v: no run, and no error", c)
	case !isSteady || !c.isRight || r.format(c.tick) != instants(c.tick):
	case errors.Is(c.err, once.ErrTooEarly), errors.Is(c.err, once.ErrSuperseded) && !isDue:
		r.faultLocked("%v: refused although the clocks are right: %v", c, c.err)
	}
}

// judge is called after all calls return.
func (r *referee) judge() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		isDone, isSuperseded := errors.Is(c.err, once.ErrDone), errors.Is(c.err, once.ErrSuperseded)
		if (isDone || isSuperseded) && !slices.ContainsFunc(r.calls, func(other *call) bool {
			isCause := isDone && other.tick.Equal(c.tick) || isSuperseded && other.tick.After(c.tick)
			return isCause && other != c && (!other.startedAt.IsZero() || other.isInDoubt())
		}) {
			r.faultLocked("%v: %v, and it was not", c, c.err)
		}
	}
	return strings.Join(r.faults, "\n")
}

// checkLog checks the records of one client.
func (r *referee) checkLog(lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := 0
	for _, c := range r.calls {
		if !c.startedAt.IsZero() || c.isInDoubt() {
			starts++
		}
	}
	n := 0
	for _, line := range lines {
		if strings.Contains(line, "occurrence superseded, not run") {
			n++
		}
	}
	if n > starts {
		r.faultLocked("%d records of superseded occurrences in the log after %d starts", n, starts)
	}
}
