package session_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// course is a course of events between a holder, a client that waits for the lock, and servers that report to their leader
// twice a tick. Each course ends when the holder's server is cut off just after a write was committed. The hold has to end
// before the next one begins.
type course struct {
	t       *testing.T
	srv     *fixture.Ensemble
	timeout time.Duration // of the sessions, by the clients' clock
	reports time.Duration // the time between two reports, by the clients' clock
	began   time.Time
	holder  *session.Session
	id      int64
	entry   *session.Entry
	ended   chan time.Time
	turn    <-chan bubble.Outcome[*session.Entry]
	locks   int
}

const courseTimeout = 24 * time.Second

// play plays a course with T = 24 s of so many ticks. The servers' clock runs at rate, by the clients'.
func play(t *testing.T, ticks int, rate float64, events func(c *course)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		every := courseTimeout / time.Duration(2*ticks)
		c := &course{t: t, timeout: courseTimeout, reports: time.Duration(float64(every) / rate), began: time.Now(), ended: make(chan time.Time, 1)}
		c.srv = fixture.NewEnsemble(t, zktest.WithServers(3), zktest.WithTouchInterval(every), zktest.WithClockRate(rate))
		bubble.Pass(time.Duration(c.first())*c.reports%(c.timeout/core.PingsPerTimeout) - pingAhead)
		next := fixture.Connect(t, c.srv.Config(c.timeout, c.srv.B))
		c.holder = fixture.Connect(t, c.srv.Config(c.timeout, c.srv.A, c.srv.Addrs()[2]))
		c.id = fixture.SessionID(c.holder)
		c.entry = bubble.Acquire(t, fixture.MutexOn(c.holder, "/m").Acquire)
		context.AfterFunc(c.entry.Context(), func() { c.ended <- time.Now() })
		c.turn = bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
		for i := range 4 {
			c.srv.Put(fmt.Sprintf("/%d", i), nil)
		}
		events(c)
		c.srv.Isolate(c.holder.Conn().Server())
		c.srv.Partition(c.id)
		ended := <-c.ended
		require.ErrorIs(t, context.Cause(c.entry.Context()), zkutil.ErrSessionLost)
		got := <-c.turn
		require.NoError(t, got.Err)
		require.True(t, ended.Before(got.At), "two holders for %v", ended.Sub(got.At))
		require.NoError(t, got.Lease.Leave())
		c.srv.Heal()
	})
}

// first returns the number of the report at which the course begins. The holder pings shortly before, by pingAhead.
func (c *course) first() int { return int(3*c.timeout/4/c.reports) + 1 }

const pingAhead = 120 * time.Millisecond

// report returns the time of the n-th report.
func (c *course) report(n int) time.Time { return c.began.Add(time.Duration(n) * c.reports) }

// passUntil lets time pass until d after t.
func (c *course) passUntil(t time.Time, d time.Duration) { bubble.Pass(time.Until(t.Add(d))) }

// write has the holder acquire another lock, and does not wait.
func (c *course) write() <-chan bubble.Outcome[*session.Entry] {
	c.locks++
	return bubble.Start(c.t.Context(), fixture.MutexOn(c.holder, fmt.Sprintf("/%d", c.locks-1)).Acquire)
}

// commit has the holder acquire another lock.
func (c *course) commit() {
	c.t.Helper()
	select {
	case got := <-c.write():
		require.NoError(c.t, got.Err)
	case <-time.After(c.timeout / 48):
	}
}

// The line stalls from just after a report until just after a later one. The first frame into the stall is a write, at a time
// after its beginning. A write after the stall is committed just before the next report.
func stallAheadOfAWrite(reports int, after time.Duration) func(c *course) {
	return func(c *course) {
		first := c.first()
		c.passUntil(c.report(first), -50*time.Millisecond)
		c.commit()
		c.passUntil(c.report(first), 5*time.Millisecond)
		c.srv.Partition(c.id)
		bubble.Pass(after)
		c.write()
		c.passUntil(c.report(first+reports), 5*time.Millisecond)
		c.srv.HealSessions(c.id)
		c.passUntil(c.report(first+reports+1), -20*time.Millisecond)
		c.commit()
	}
}

// The same, but the stall begins while the write is committed.
func stallBehindAWrite(reports int, ahead time.Duration) func(c *course) {
	return func(c *course) {
		first := c.first()
		c.passUntil(c.report(first), -50*time.Millisecond-ahead)
		c.commit()
		c.passUntil(c.report(first), -20*time.Millisecond)
		c.srv.SlowCommits(12 * time.Millisecond)
		c.write()
		bubble.Pass(5 * time.Millisecond)
		c.srv.Partition(c.id)
		bubble.Pass(11 * time.Millisecond)
		c.srv.SlowCommits(0)
		c.passUntil(c.report(first+reports), 5*time.Millisecond)
		c.srv.HealSessions(c.id)
		c.passUntil(c.report(first+reports+1), -20*time.Millisecond)
		c.commit()
	}
}

// The line stalls ahead of a write, as in stallAheadOfAWrite, shortly after the quorum was slow for some time.
func stallOnASlowQuorum(reports int, slow time.Duration) func(c *course) {
	return func(c *course) {
		first := c.first() + int(c.timeout/c.reports)
		c.passUntil(c.report(first), -c.timeout)
		c.srv.SlowCommits(slow)
		c.passUntil(c.report(first), -c.timeout/4)
		c.srv.SlowCommits(0)
		c.passUntil(c.report(first), 5*time.Millisecond)
		c.srv.Partition(c.id)
		c.write()
		c.passUntil(c.report(first+reports), 5*time.Millisecond)
		c.srv.HealSessions(c.id)
		c.passUntil(c.report(first+reports+1), -20*time.Millisecond)
		c.commit()
	}
}

// The holder's server stops just before a report. Another server takes long to answer the handshake, and a report leaves
// between the handshake and the first request. A write is committed just before the next report.
func slowHandshake(takes time.Duration) func(c *course) {
	return func(c *course) {
		first := c.first()
		c.passUntil(c.report(first), -takes+10*time.Millisecond)
		c.srv.SlowHandshakes(takes)
		c.srv.Stop(c.holder.Conn().Server())
		c.passUntil(c.report(first), 20*time.Millisecond)
		c.srv.SlowHandshakes(0)
		c.passUntil(c.report(first+1), -60*time.Millisecond)
		c.commit()
	}
}

// clockRates are those of the servers' clock by the clients': clients' clocks at 8/9, at the same rate, and at 10/9.
var clockRates = []float64{9.0 / 8, 1, 9.0 / 10}

func TestOneHolderInEachCourse(t *testing.T) {
	ticks := []int{2, 3, 4, 20}
	if testing.Short() {
		ticks = []int{2, 4}
	}
	for _, ticks := range ticks {
		for _, rate := range clockRates {
			for name, events := range coursesOf(ticks, rate) {
				t.Run(fmt.Sprintf("%d ticks, clock at %.3f, %s", ticks, rate, name), func(t *testing.T) {
					play(t, ticks, rate, events)
				})
			}
		}
	}
}

func coursesOf(ticks int, rate float64) map[string]func(*course) {
	courses := map[string]func(*course){}
	for _, part := range []int{24, 12, 8} {
		takes := courseTimeout/time.Duration(part) - 10*time.Millisecond
		courses[fmt.Sprintf("handshake of T/%d", part)] = slowHandshake(takes)
	}
	every := time.Duration(float64(courseTimeout) / float64(2*ticks) / rate)
	for reports := 1; time.Duration(reports)*every <= courseTimeout/2; reports = max(reports+1, reports*5/4) {
		if stall := time.Duration(reports) * every; rate > 1 && stall > courseTimeout/8 && stall < courseTimeout/6 {
			continue // 2T/3 has no margin for clocks then (see internal/zkutil/core/derivation.md)
		}
		for _, part := range []int{20, 10, 7} {
			courses[fmt.Sprintf("stall of %d reports, commits of T/%d before", reports, part)] = stallOnASlowQuorum(reports, courseTimeout/time.Duration(part))
		}
		for _, part := range []int{1000, 24, 11} {
			d := courseTimeout / time.Duration(part)
			courses[fmt.Sprintf("stall of %d reports, write after T/%d", reports, part)] = stallAheadOfAWrite(reports, d)
			courses[fmt.Sprintf("stall of %d reports in a commit, write before by T/%d", reports, part)] = stallBehindAWrite(reports, d)
		}
	}
	return courses
}

// The server that a session left reports the session once more, with a shorter timeout, after the next server granted a
// longer one again and committed a write.
func TestReportOfTheServerBeforeEndsNoHold(t *testing.T) {
	for _, least := range leastTimeouts {
		testkit.Bubble(t, func(t *testing.T) {
			reports := least / 4
			began := time.Now()
			b := newBounded(t, least, zktest.WithTouchInterval(reports))
			b.srv.Put("/other", nil)
			b.srv.Stop(b.bounds.long) // the holder moves to the server that grants less, and back
			bubble.Eventually(t, 20*time.Second, func() bool { return b.holder.Timeout() == least })
			b.srv.Restart(b.bounds.long)
			bubble.Pass(reports - time.Since(began)%reports + time.Millisecond)
			bubble.Pass(least / 8) // for a ping
			require.NoError(t, b.entry.Context().Err())
			b.srv.Inject(func(r zktest.Request) zktest.Fault {
				return fixture.Cut(r.Op == zktest.OpConnect && r.Session == b.id && r.Server == b.bounds.short, zktest.RequestLost)
			})
			b.srv.Disconnect(b.id)
			bubble.Eventually(t, reports/4, func() bool { return b.holder.State() == connstate.Connected && b.holder.Timeout() > least })
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(b.holder, "/other").Acquire).Leave())
			b.isCut.Store(true)
			b.srv.Isolate(b.bounds.long)
			b.srv.Partition(b.id)
			b.requireOneHolder(t)
		})
	}
}
