package zkutil

import (
	"container/heap"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// play is a client and a server that reports to its leader, by a clock of their own. The client is stopped now and then, also
// in the middle of sending, and the line to the server stands still.
type play struct {
	*contact
	random   *rand.Rand
	at       time.Time // now
	events   timeline
	count    int // of events
	xid      int32
	stall    [2]time.Duration // the line stands still from then, until then
	arrivals []time.Time
	answer   time.Time // no answer comes before the ones before it
	writes   int       // on their way
	quick    bool      // the quorum commits soon, and the client is never stopped
	check    func(p *play, w sentFrame, arrived time.Time)
}

const lifetime = 1200 * time.Millisecond

var playBegins = time.Unix(1_000_000, 0)

type event struct {
	at time.Time
	n  int // of events at the same time the first comes first
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

func newPlay(seed uint64, check func(*play, sentFrame, time.Time)) *play {
	p := &play{random: rand.New(rand.NewPCG(seed, 0)), at: playBegins, check: check}
	p.contact = newContact(func() time.Time { return p.at }, new(atomic.Bool))
	p.open(p.at, lifetime)
	p.arrivals = []time.Time{p.at}
	return p
}

func (p *play) upTo(d time.Duration) time.Duration {
	return time.Duration(p.random.Int64N(int64(d) + 1))
}

func (p *play) later(d time.Duration, do func()) { p.schedule(p.at.Add(d), do) }

func (p *play) schedule(at time.Time, do func()) {
	p.count++
	heap.Push(&p.events, event{at, p.count, do})
}

// run plays for three lifetimes.
func (p *play) run() {
	p.later(lifetime/pingsPerTimeout, p.ping)
	stops := 3
	if p.quick {
		stops = 0
	}
	for range stops {
		p.later(p.upTo(2*lifetime), func() { p.at = p.at.Add(p.upTo(lifetime * 9 / 10)) }) // stopped
	}
	for range 12 {
		p.later(p.upTo(3*lifetime), func() { p.request(proto.OpMulti) })
	}
	p.stall[0] = lifetime + p.upTo(lifetime)
	p.stall[1] = p.stall[0] + p.upTo(lifetime*2/3)
	for len(p.events) > 0 && p.at.Sub(playBegins) < 3*lifetime {
		next := heap.Pop(&p.events).(event)
		p.at = latest(p.at, next.at) // what was due while the client was stopped comes late
		next.do()
	}
}

func (p *play) ping() {
	p.request(proto.OpPing)
	p.later(lifetime/pingsPerTimeout, p.ping)
}

// request sends one.
func (p *play) request(op int32) {
	p.xid++
	xid, began := p.xid, p.at
	var arrived time.Time
	_ = p.send(xid, op, func() error {
		stopped := p.random.IntN(30)
		if p.quick {
			stopped = 2
		}
		if stopped == 0 {
			p.at = p.at.Add(p.upTo(lifetime * 9 / 10))
		}
		arrived = p.arrive(op)
		if stopped == 1 {
			p.at = p.at.Add(p.upTo(lifetime * 9 / 10))
		}
		return nil
	})
	f := sentFrame{xid, op, began}
	p.answer = latest(p.answer, arrived)
	if f.isWrite() {
		took := p.upTo(lifetime / 3)
		if p.quick {
			took /= 6
		}
		p.answer = latest(p.answer, arrived.Add(took))
		p.writes++
	}
	p.schedule(p.answer, func() {
		p.receive(xid)
		if f.isWrite() {
			p.writes--
			p.check(p, f, arrived)
		}
	})
}

// arrive is when what is sent now reaches the server. While the quorum is slow, the first that the line delays is no write,
// nor behind one: nobody can tell that case from a slow quorum, and docs/guarantees.md says so.
func (p *play) arrive(op int32) time.Time {
	now := p.at.Sub(playBegins)
	if now >= p.stall[0] && now < p.stall[1] {
		first := p.arrivals[len(p.arrivals)-1].Before(playBegins.Add(p.stall[0]))
		if !p.quick && first && (p.writes > 0 || op != proto.OpPing) {
			p.stall = [2]time.Duration{}
		} else {
			now = p.stall[1]
		}
	}
	p.arrivals = append(p.arrivals, playBegins.Add(now))
	return playBegins.Add(now)
}

// expiry is when the leader ends the session if the server, which reports every so often, is cut off from it at a moment.
func (p *play) expiry(cut time.Time, phase, every time.Duration) time.Time {
	end := playBegins.Add(lifetime)
	for report := playBegins.Add(phase); !report.After(cut); report = report.Add(every) {
		for _, arrived := range p.arrivals {
			if arrived.After(report.Add(-every)) && !arrived.After(report) {
				end = latest(end, report.Add(lifetime))
			}
		}
	}
	return end
}

// Whatever pauses there were, no write proves the session for longer than the leader lets it live, even if the server is cut
// off from the leader as soon as it has passed the write on; and a margin is left.
func TestProofEndsBeforeTheSession(t *testing.T) {
	plays := uint64(20_000)
	if testing.Short() || raced {
		plays = 2_000
	}
	shortened, blind, checked := 0, 0, 0
	for seed := range plays {
		p := newPlay(seed, func(p *play, w sentFrame, arrived time.Time) {
			until, naive := p.limit(w.at, lifetime*2/3, lifetime), w.at.Add(lifetime*2/3)
			if !naive.After(p.at) {
				return // it came too late to prove anything
			}
			every := lifetime/4 - p.upTo(lifetime/4-time.Millisecond)
			expiry := p.expiry(arrived, p.upTo(every), every)
			margin := expiry.Sub(until)
			least := lifetime / 12
			if p.quick { // what a line holds up may be as much longer as a commit takes
				least = lifetime / 48
			}
			require.GreaterOrEqual(t, margin, least, "seed %d, reports every %v, a write at %v", seed, every, w.at.Sub(playBegins))
			checked++
			if until.Before(naive) {
				shortened++
			}
			if expiry.Before(naive) {
				blind++
			}
		})
		p.quick = seed%2 == 0
		p.run()
	}
	t.Logf("%d writes, %d of them proved less for a pause; without that, %d would have proved too much", checked, shortened, blind)
	require.Positive(t, blind, "the plays have shown nothing")
}

// Without pauses every write proves the session for the whole horizon, also while the quorum is slow.
func TestProofIsWholeWithoutPauses(t *testing.T) {
	for seed := range uint64(500) {
		p := newPlay(seed, func(p *play, w sentFrame, _ time.Time) {
			require.Equal(t, w.at.Add(lifetime*2/3), p.limit(w.at, lifetime*2/3, lifetime), "seed %d", seed)
		})
		p.later(lifetime/pingsPerTimeout, p.ping)
		p.holding.Store(true)
		p.random = rand.New(always(31)) // never stopped in the middle of sending
		for i := range 30 {
			p.later(lifetime/10*time.Duration(i), func() { p.request(proto.OpMulti) })
		}
		for len(p.events) > 0 && p.at.Sub(playBegins) < 3*lifetime {
			next := heap.Pop(&p.events).(event)
			p.at = next.at
			next.do()
		}
	}
}

// always is a source of one number.
type always uint64

func (a always) Uint64() uint64 { return uint64(a)<<32 | uint64(a) }

// A gap limits the writes that were sent less than T/4 after it, and is forgotten with its time.
func TestGaps(t *testing.T) {
	at := func(ms int) time.Time { return playBegins.Add(time.Duration(ms) * time.Millisecond) }
	var g gaps
	g.add(gap{from: at(0), until: at(700)}, lifetime)
	g.add(gap{from: at(0), until: at(800)}, lifetime)
	require.Equal(t, gaps{{from: at(0), until: at(800)}}, g, "the same gap, longer")
	limit := func(ms int) time.Time { return g.limit(at(ms), lifetime*2/3, lifetime) }
	require.Equal(t, at(1100), limit(800))
	require.Equal(t, at(1100), limit(1099))
	require.Equal(t, at(1900), limit(1100))
	require.Equal(t, at(900), limit(100), "it proves no more than it would have")
	g.add(gap{from: at(850), until: at(1500)}, lifetime)
	require.Len(t, g, 2)
	g.add(gap{from: at(2100), until: at(2500)}, lifetime)
	require.Len(t, g, 2)
}

// A write that is sent the moment a late answer comes, and is late itself, says that the quorum is slow: see judgeWriteLocked.
func TestWriteAtTheMomentOfALateAnswer(t *testing.T) {
	p := newPlay(1, nil)
	write := func(xid int32) (at time.Time) {
		at = p.at
		require.NoError(t, p.send(xid, proto.OpMulti, func() error { return nil }))
		p.at = p.at.Add(lifetime / 20)
		require.NoError(t, p.send(proto.XidPing, proto.OpPing, func() error { return nil }))
		for range 5 {
			p.at = p.at.Add(lifetime / 10)
			require.NoError(t, p.send(proto.XidPing, proto.OpPing, func() error { return nil }))
		}
		_, ok := p.receive(xid)
		require.True(t, ok)
		return at
	}
	write(1)
	require.Len(t, p.gaps, 1, "one late answer alone may come from a stall")
	second := write(2)
	require.Empty(t, p.gaps)
	require.Equal(t, second.Add(lifetime*2/3), p.limit(second, lifetime*2/3, lifetime))
}

// The process is stopped after the time of a request was taken, and before the request goes out: what the server received
// last is the request before it.
func TestPauseBeforeAFrameGoesOut(t *testing.T) {
	p := newPlay(1, nil)
	at := func(ms int) time.Time { return playBegins.Add(time.Duration(ms) * time.Millisecond) }
	p.at = at(100)
	require.NoError(t, p.send(proto.XidPing, proto.OpPing, func() error { return nil }))
	p.at = at(200)
	require.NoError(t, p.send(1, proto.OpMulti, func() error { p.at = at(800); return nil }))
	p.at = at(810)
	require.NoError(t, p.send(2, proto.OpMulti, func() error { return nil }))
	require.Equal(t, at(100+1100), p.limit(at(810), lifetime*2/3, lifetime))
}
