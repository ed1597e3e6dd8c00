package core

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// simulation is a client and a server that reports to its leader, with a clock of their own. The
// client is stopped at random times, also while it sends, and the connection stands still for a time.
type simulation struct {
	Contact
	random   *rand.Rand
	at       time.Time // now
	events   timeline
	count    int // of events
	xid      int32
	stall    [2]time.Duration // the connection stands still from the first until the second
	arrivals []time.Time
	holds    bool
	answerAt time.Time // of the latest answer, as answers arrive in order
	writes   int       // in flight
	isQuick  bool      // the quorum commits quickly, and the client is never stopped
	idle     time.Time // until then the client pings as one that is idle
	check    func(sim *simulation, w Frame, arrived time.Time)
}

const lifetime = 1200 * time.Millisecond

var simulationStart = time.Unix(1_000_000, 0)

type event struct {
	at time.Time
	n  int // events at the same time happen in the order of their numbers
	do func()
}

type timeline []event

func (l timeline) Len() int { return len(l) }
func (l timeline) Less(i, j int) bool {
	return l[i].at.Before(l[j].at) || l[i].at.Equal(l[j].at) && l[i].n < l[j].n
}
func (l timeline) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *timeline) Push(x any)   { *l = append(*l, x.(event)) }
func (l *timeline) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func newSimulation(seed uint64, check func(*simulation, Frame, time.Time)) *simulation {
	sim := &simulation{random: rand.New(rand.NewPCG(seed, 0)), at: simulationStart, check: check}
	sim.OnHandshake(sim.at, Handshake{BeganAt: sim.at, Timeout: lifetime, IsResumed: true})
	sim.arrivals = []time.Time{sim.at}
	return sim
}

func (sim *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(sim.random.Int64N(int64(d) + 1))
}

func (sim *simulation) later(d time.Duration, do func()) { sim.schedule(sim.at.Add(d), do) }

func (sim *simulation) schedule(at time.Time, do func()) {
	sim.count++
	heap.Push(&sim.events, event{at, sim.count, do})
}

// run simulates three lifetimes.
func (sim *simulation) run() {
	sim.later(lifetime/PingsPerTimeout, sim.ping)
	sim.idle = simulationStart.Add(sim.upTo(2*lifetime) - lifetime/2)
	stops := 3
	if sim.isQuick {
		stops = 0
	}
	for range stops {
		sim.later(sim.upTo(2*lifetime), func() { sim.at = sim.at.Add(sim.upTo(lifetime * 9 / 10)) }) // stopped
	}
	for range 12 {
		sim.later(sim.upTo(3*lifetime), func() { sim.request(proto.OpMulti) })
	}
	sim.stall[0] = lifetime + sim.upTo(lifetime)
	sim.stall[1] = sim.stall[0] + sim.upTo(lifetime*2/3)
	for len(sim.events) > 0 && sim.at.Sub(simulationStart) < 3*lifetime {
		next := heap.Pop(&sim.events).(event)
		sim.at = zkutil.Latest(sim.at, next.at) // an event that was due while the client was stopped is late
		next.do()
	}
}

func (sim *simulation) ping() {
	const interval = lifetime / PingsPerTimeout
	if !sim.at.Before(sim.idle) || sim.IsPingDue(sim.at, false, false) {
		sim.request(proto.OpPing)
	}
	sim.later(interval, sim.ping)
}

// request sends a request, and schedules its answer.
func (sim *simulation) request(op int32) {
	sim.xid++
	xid, began := sim.xid, sim.at
	var arrived time.Time
	sim.send(xid, op, func(isBehindPing bool) {
		if isBehindPing {
			sim.answerAt = zkutil.Latest(sim.answerAt, sim.arrive(proto.OpPing))
			sim.schedule(sim.answerAt, func() { sim.answer(proto.XidPing) })
		}
		stopped := sim.random.IntN(30)
		if sim.isQuick {
			stopped = 2
		}
		if stopped == 0 {
			sim.at = sim.at.Add(sim.upTo(lifetime * 9 / 10))
		}
		arrived = sim.arrive(op)
		if stopped == 1 {
			sim.at = sim.at.Add(sim.upTo(lifetime * 9 / 10))
		}
	})
	f := Frame{XID: xid, Op: op, SentAt: began}
	sim.answerAt = zkutil.Latest(sim.answerAt, arrived)
	if f.isWrite() {
		took := sim.upTo(lifetime / 3)
		if sim.isQuick {
			took /= 6
		}
		sim.answerAt = zkutil.Latest(sim.answerAt, arrived.Add(took))
		sim.writes++
	}
	sim.schedule(sim.answerAt, func() {
		sim.answer(xid)
		if f.isWrite() {
			sim.writes--
			sim.check(sim, f, arrived)
		}
	})
}

// send records a request of zk.Conn's. write, if not nil, sends the request, and may let time pass.
func (sim *simulation) send(xid, op int32, write func(isBehindPing bool)) {
	frames, sentAt := []Frame{{XID: xid, Op: op}}, sim.at
	isBehindPing := sim.OnSend(sentAt, sim.holds, frames)
	if write != nil {
		write(isBehindPing)
	}
	sim.OnSent(sim.at, sentAt, frames)
}

// answer records an answer.
func (sim *simulation) answer(xid int32) (ok bool) {
	_, ok = sim.OnAnswer(sim.at, sim.holds, xid, proto.CodeOK)
	return ok
}

// arrive returns when a request that is sent now reaches the server. While the quorum is slow, the first request that
// the connection delays is neither a write nor behind one, because no order of answers distinguishes that case from a
// slow quorum.
func (sim *simulation) arrive(op int32) time.Time {
	now := sim.at.Sub(simulationStart)
	if now >= sim.stall[0] && now < sim.stall[1] {
		first := sim.arrivals[len(sim.arrivals)-1].Before(simulationStart.Add(sim.stall[0]))
		if !sim.isQuick && first && (sim.writes > 0 || op != proto.OpPing) {
			sim.stall = [2]time.Duration{}
		} else {
			now = sim.stall[1]
		}
	}
	sim.arrivals = append(sim.arrivals, simulationStart.Add(now))
	return simulationStart.Add(now)
}

// expiry returns when the leader ends the session, if the server reports to it at an interval and is
// cut off from it at a moment.
func (sim *simulation) expiry(cut time.Time, phase, every time.Duration) time.Time {
	end := simulationStart.Add(lifetime)
	for report := simulationStart.Add(phase); !report.After(cut); report = report.Add(every) {
		for _, arrived := range sim.arrivals {
			if arrived.After(report.Add(-every)) && !arrived.After(report) {
				end = zkutil.Latest(end, report.Add(lifetime))
			}
		}
	}
	return end
}

// No write proves the session for longer than the leader lets it live, with any pauses before it, and even if the
// server is cut off from the leader as soon as it forwarded the write. A margin is left.
func TestProofEndsBeforeTheSession(t *testing.T) {
	runs := uint64(20_000)
	if testing.Short() || testkit.IsRaced {
		runs = 2_000
	}
	shortened, blind, checked := 0, 0, 0
	for seed := range runs {
		sim := newSimulation(seed, func(sim *simulation, w Frame, arrived time.Time) {
			until, naive := sim.ProofLimit(sim.at, w.SentAt, lifetime*2/3, lifetime), w.SentAt.Add(lifetime*2/3)
			if !naive.After(sim.at) {
				return // the answer was too late to prove anything
			}
			every := lifetime/4 - sim.upTo(lifetime/4-time.Millisecond)
			expiry := sim.expiry(arrived, sim.upTo(every), every)
			margin := expiry.Sub(until)
			least := lifetime / 12
			if sim.isQuick { // a gap may be longer than it looks, by as much as a commit takes
				least = lifetime / 48
			}
			if margin < least { // before require, which is slow: there are 190,000 writes
				require.GreaterOrEqual(t, margin, least, "seed %d, reports every %v, a write at %v", seed, every, w.SentAt.Sub(simulationStart))
			}
			checked++
			if until.Before(naive) {
				shortened++
			}
			if expiry.Before(naive) {
				blind++
			}
		})
		sim.isQuick = seed%2 == 0
		sim.run()
	}
	t.Logf("%d writes, %d of them proved less because of a pause; without that, %d would have proved too much", checked, shortened, blind)
	require.Positive(t, blind, "no run had a pause that mattered")
}

// Without pauses every write proves the session for the full horizon, also while the quorum is slow.
func TestProofIsWholeWithoutPauses(t *testing.T) {
	for seed := range uint64(500) {
		sim := newSimulation(seed, func(sim *simulation, w Frame, _ time.Time) {
			require.Equal(t, w.SentAt.Add(lifetime*2/3), sim.ProofLimit(sim.at, w.SentAt, lifetime*2/3, lifetime), "seed %d", seed)
		})
		sim.later(lifetime/PingsPerTimeout, sim.ping)
		sim.holds = true
		sim.random = rand.New(always(31)) // never stopped in the middle of sending
		for i := range 30 {
			sim.later(lifetime/10*time.Duration(i), func() { sim.request(proto.OpMulti) })
		}
		for len(sim.events) > 0 && sim.at.Sub(simulationStart) < 3*lifetime {
			next := heap.Pop(&sim.events).(event)
			sim.at = next.at
			next.do()
		}
	}
}

// always is a source of one number.
type always uint64

func (a always) Uint64() uint64 { return uint64(a)<<32 | uint64(a) }

// A gap limits the writes that were sent less than 5T/18 after it. It is forgotten after T.
func TestGaps(t *testing.T) {
	at := func(ms int) time.Time { return simulationStart.Add(time.Duration(ms) * time.Millisecond) }
	var g Gaps
	g.Add(Gap{StartAt: at(0), EndAt: at(700)}, lifetime)
	g.Add(Gap{StartAt: at(0), EndAt: at(800)}, lifetime)
	require.Equal(t, Gaps{{StartAt: at(0), EndAt: at(800)}}, g, "the same gap, longer")
	limit := func(ms int) time.Time { return g.Limit(at(ms), lifetime*2/3, lifetime) }
	ninth := simulationStart.Add(lifetime - lifetime/9)
	require.Equal(t, ninth, limit(800))
	require.Equal(t, ninth, limit(1133))
	require.Equal(t, at(1934), limit(1134))
	require.Equal(t, at(900), limit(100), "a gap never prolongs a proof")
	g.Add(Gap{StartAt: at(850), EndAt: at(1500)}, lifetime)
	require.Len(t, g, 2)
	g.Add(Gap{StartAt: at(2100), EndAt: at(2500)}, lifetime)
	require.Len(t, g, 2)
}

// A write that is sent when a late answer arrives, and is answered late itself, shows that the quorum is slow (see
// judgeLateWrite).
func TestWriteAtTheMomentOfALateAnswer(t *testing.T) {
	sim := newSimulation(1, nil)
	sim.isFresh, sim.gaps = false, nil
	write := func(xid int32) (at time.Time) {
		at = sim.at
		sim.send(xid, proto.OpMulti, nil)
		sim.at = sim.at.Add(lifetime / 20)
		sim.send(proto.XidPing, proto.OpPing, nil)
		for range 5 {
			sim.at = sim.at.Add(lifetime / 10)
			sim.send(proto.XidPing, proto.OpPing, nil)
		}
		require.True(t, sim.answer(xid))
		return at
	}
	write(1)
	require.Len(t, sim.gaps, 1, "one late answer alone may come from a stall")
	second := write(2)
	require.Empty(t, sim.gaps)
	require.Equal(t, second.Add(lifetime*2/3), sim.ProofLimit(sim.at, second, lifetime*2/3, lifetime))
}

// The process is stopped after it read the clock for a request, and before it sends the request. The last request that
// the server received is then the one before it.
func TestPauseBeforeAFrameGoesOut(t *testing.T) {
	sim := newSimulation(1, nil)
	sim.isFresh = false
	at := func(ms int) time.Time { return simulationStart.Add(time.Duration(ms) * time.Millisecond) }
	sim.at = at(100)
	sim.send(proto.XidPing, proto.OpPing, nil)
	sim.at = at(200)
	sim.send(1, proto.OpMulti, func(bool) { sim.at = at(800) })
	sim.at = at(810)
	sim.send(2, proto.OpMulti, nil)
	require.Equal(t, at(100).Add(lifetime-lifetime/9), sim.ProofLimit(sim.at, at(810), lifetime*2/3, lifetime))
}

// A ping is sent ahead of a holder's write unless an answer shows that a recent frame got through, and ahead of the first
// write after a handshake in any case.
func TestPingAheadOfAWrite(t *testing.T) {
	const timeout = 24 * time.Second
	answered := func(c *Contact) { c.isFresh, c.answeredSentAt = false, c.beganAt }
	for name, test := range map[string]struct {
		change    func(c *Contact)
		after     time.Duration
		op        int32
		isHolding bool
		want      bool
	}{
		"T/24 after an answered frame":          {answered, time.Second, proto.OpMulti, true, true},
		"earlier":                               {answered, time.Second - 1, proto.OpMulti, true, false},
		"a sync waits for the quorum, too":      {answered, time.Second, proto.OpSync, true, true},
		"a read":                                {answered, time.Second, proto.OpGetData, true, false},
		"a ping":                                {answered, time.Second, proto.OpPing, true, false},
		"a credential":                          {answered, time.Second, proto.OpAuth, true, false},
		"nothing is held":                       {answered, time.Second, proto.OpMulti, false, false},
		"nothing is held, after a handshake":    {func(*Contact) {}, 0, proto.OpDelete, false, true},
		"pings are transactions":                {func(c *Contact) { answered(c); c.isBound = true }, time.Second, proto.OpMulti, true, false},
		"behind another write":                  {func(c *Contact) { answered(c); c.inFlight.add(Frame{Op: proto.OpDelete}) }, time.Second, proto.OpMulti, true, false},
		"behind a read":                         {func(c *Contact) { answered(c); c.inFlight.add(Frame{Op: proto.OpExists}) }, time.Second, proto.OpMulti, true, true},
		"before the handshake, with no timeout": {func(c *Contact) { c.timeout = 0 }, time.Second, proto.OpMulti, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := after(0)
			var c Contact
			c.OnHandshake(now, Handshake{BeganAt: now, Timeout: timeout, IsResumed: true})
			test.change(&c)
			require.Equal(t, test.want, c.OnSend(now.Add(test.after), test.isHolding, []Frame{{XID: 1, Op: test.op}}))
		})
	}
}

// Where reads extend no session, a read does not end a gap, and a ping does. A write right after a read is worth as much as one without
// the read.
func TestReadsEndNoGapOfABoundSession(t *testing.T) {
	for isBound, worth := range map[bool]time.Duration{false: session * 2 / 3, true: session - session/9 - session*2/5} {
		now := after(0)
		var c Contact
		send := func(op int32) {
			frames := []Frame{{XID: 1, Op: op}}
			c.OnSend(now, false, frames)
			c.OnSent(now, now, frames)
		}
		c.OnHandshake(now, Handshake{BeganAt: now, Timeout: session, IsResumed: true, IsBound: isBound})
		for range 10 { // reads every T/25, for 2T/5
			now = now.Add(session / 25)
			send(proto.OpGetData)
			c.OnAnswer(now, false, 1, proto.CodeOK)
		}
		send(proto.OpMulti)
		require.Equal(t, worth, c.ProofLimit(now, now, session*2/3, session).Sub(now), "bound: %v", isBound)
	}
}

// A session without holds sends a ping after T/3 without one or a write; one with holds leaves that to others.
func TestPingsThatAreTransactionsAreSaved(t *testing.T) {
	var c Contact
	require.False(t, c.SavesPings(false))
	c.OnHandshake(after(0), Handshake{BeganAt: after(0), Timeout: session, IsResumed: true, IsBound: true})
	require.True(t, c.SavesPings(false))
	require.False(t, c.IsPingDue(after(session/3-1), true, false))
	require.True(t, c.IsPingDue(after(session/3), true, false))
	require.False(t, c.SavesPings(true))
	require.True(t, c.IsPingDue(after(1), true, true))
}
