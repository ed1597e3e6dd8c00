package wire

import (
	"container/heap"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trust"
)

// simulation is a client and a server that reports to its leader, with a clock of their own. The
// client is stopped at random times, also while it sends, and the connection stands still for a time.
type simulation struct {
	*contact
	random   *rand.Rand
	at       time.Time // now
	events   timeline
	count    int // of events
	xid      int32
	stall    [2]time.Duration // the connection stands still from the first until the second
	arrivals []time.Time
	answerAt time.Time // of the latest answer: answers come in order
	writes   int       // in flight
	isQuick  bool      // the quorum commits quickly, and the client is never stopped
	idle     time.Time // until then the client pings as one that is idle
	check    func(sim *simulation, w sentFrame, arrived time.Time)
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

func newSimulation(seed uint64, check func(*simulation, sentFrame, time.Time)) *simulation {
	sim := &simulation{random: rand.New(rand.NewPCG(seed, 0)), at: simulationStart, check: check}
	sim.contact = newContact(func() time.Time { return sim.at }, new(atomic.Bool))
	sim.noteHandshake(sim.at, lifetime)
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
	sim.later(lifetime/trust.PingsPerTimeout, sim.ping)
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
		sim.at = zkutil.Latest(sim.at, next.at) // an event that was due while the client was stopped comes late
		next.do()
	}
}

func (sim *simulation) ping() {
	const interval = lifetime / trust.PingsPerTimeout
	if !sim.at.Before(sim.idle) || sim.isPingDue(interval, lifetime) {
		sim.request(proto.OpPing)
	}
	sim.later(interval, sim.ping)
}

// request sends a request, and schedules its answer.
func (sim *simulation) request(op int32) {
	sim.xid++
	xid, began := sim.xid, sim.at
	var arrived time.Time
	_ = sim.sendRequest(xid, op, func() error {
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
		return nil
	})
	f := sentFrame{xid: xid, op: op, sentAt: began}
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
		sim.noteAnswer(xid, proto.CodeOK)
		if f.isWrite() {
			sim.writes--
			sim.check(sim, f, arrived)
		}
	})
}

// arrive returns when a request that is sent now reaches the server. While the quorum is slow, the
// first request that the connection delays is neither a write nor behind one, because nobody can tell
// that case from a slow quorum: see docs/evidence/guarantees-tests.md.
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

// No write proves the session for longer than the leader lets it live, with any pauses before it, and
// even if the server is cut off from the leader as soon as it has forwarded the write. A margin is
// left.
func TestProofEndsBeforeTheSession(t *testing.T) {
	runs := uint64(20_000)
	if testing.Short() || testkit.IsRaced {
		runs = 2_000
	}
	shortened, blind, checked := 0, 0, 0
	for seed := range runs {
		sim := newSimulation(seed, func(sim *simulation, w sentFrame, arrived time.Time) {
			until, naive := sim.proofLimit(w.sentAt, lifetime*2/3, lifetime), w.sentAt.Add(lifetime*2/3)
			if !naive.After(sim.at) {
				return // the answer came too late to prove anything
			}
			every := lifetime/4 - sim.upTo(lifetime/4-time.Millisecond)
			expiry := sim.expiry(arrived, sim.upTo(every), every)
			margin := expiry.Sub(until)
			least := lifetime / 12
			if sim.isQuick { // a gap may be longer than it looks, by as much as a commit takes
				least = lifetime / 48
			}
			if margin < least { // before require, which is slow: there are 190,000 writes
				require.GreaterOrEqual(t, margin, least, "seed %d, reports every %v, a write at %v", seed, every, w.sentAt.Sub(simulationStart))
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
		sim := newSimulation(seed, func(sim *simulation, w sentFrame, _ time.Time) {
			require.Equal(t, w.sentAt.Add(lifetime*2/3), sim.proofLimit(w.sentAt, lifetime*2/3, lifetime), "seed %d", seed)
		})
		sim.later(lifetime/trust.PingsPerTimeout, sim.ping)
		sim.isHolding.Store(true)
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

// A gap limits the writes that were sent less than T/4 after it. It is forgotten after T.
func TestGaps(t *testing.T) {
	at := func(ms int) time.Time { return simulationStart.Add(time.Duration(ms) * time.Millisecond) }
	var g trust.Gaps
	g.Add(trust.Gap{StartAt: at(0), EndAt: at(700)}, lifetime)
	g.Add(trust.Gap{StartAt: at(0), EndAt: at(800)}, lifetime)
	require.Equal(t, trust.Gaps{{StartAt: at(0), EndAt: at(800)}}, g, "the same gap, longer")
	limit := func(ms int) time.Time { return g.Limit(at(ms), lifetime*2/3, lifetime) }
	require.Equal(t, at(1100), limit(800))
	require.Equal(t, at(1100), limit(1099))
	require.Equal(t, at(1900), limit(1100))
	require.Equal(t, at(900), limit(100), "a gap never prolongs a proof")
	g.Add(trust.Gap{StartAt: at(850), EndAt: at(1500)}, lifetime)
	require.Len(t, g, 2)
	g.Add(trust.Gap{StartAt: at(2100), EndAt: at(2500)}, lifetime)
	require.Len(t, g, 2)
}

// A write that is sent when a late answer comes, and is answered late itself, shows that the quorum is
// slow: see judgeLateWriteLocked.
func TestWriteAtTheMomentOfALateAnswer(t *testing.T) {
	sim := newSimulation(1, nil)
	write := func(xid int32) (at time.Time) {
		at = sim.at
		require.NoError(t, sim.sendRequest(xid, proto.OpMulti, func() error { return nil }))
		sim.at = sim.at.Add(lifetime / 20)
		require.NoError(t, sim.sendRequest(proto.XidPing, proto.OpPing, func() error { return nil }))
		for range 5 {
			sim.at = sim.at.Add(lifetime / 10)
			require.NoError(t, sim.sendRequest(proto.XidPing, proto.OpPing, func() error { return nil }))
		}
		_, ok := sim.noteAnswer(xid, proto.CodeOK)
		require.True(t, ok)
		return at
	}
	write(1)
	require.Len(t, sim.gaps, 1, "one late answer alone may come from a stall")
	second := write(2)
	require.Empty(t, sim.gaps)
	require.Equal(t, second.Add(lifetime*2/3), sim.proofLimit(second, lifetime*2/3, lifetime))
}

// The process is stopped after it has read the clock for a request, and before it sends the request.
// The last request that the server received is then the one before it.
func TestPauseBeforeAFrameGoesOut(t *testing.T) {
	sim := newSimulation(1, nil)
	at := func(ms int) time.Time { return simulationStart.Add(time.Duration(ms) * time.Millisecond) }
	sim.at = at(100)
	require.NoError(t, sim.sendRequest(proto.XidPing, proto.OpPing, func() error { return nil }))
	sim.at = at(200)
	require.NoError(t, sim.sendRequest(1, proto.OpMulti, func() error { sim.at = at(800); return nil }))
	sim.at = at(810)
	require.NoError(t, sim.sendRequest(2, proto.OpMulti, func() error { return nil }))
	require.Equal(t, at(100+1100), sim.proofLimit(at(810), lifetime*2/3, lifetime))
}
