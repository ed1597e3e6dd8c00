package budget

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// model plays calls and znodes on a budget, and compares it with a separate count.
type model struct {
	*testing.T
	random  *rand.Rand
	b       *Budget
	waiting map[string][]*Reservation // by directory, in order of arrival
	given   []*Reservation
	creates []*Charge // not answered
	paths   []string  // of znodes that exist
	made    int
}

const (
	modelLimit, modelContenders = 1000, 3
	modelBytes                  = 100 // of most znodes
)

// For any calls and answers, the bytes never exceed the limit, no waiter waits without need, each directory has the bytes that
// its waiters need, reservations are granted in the order of the requests, a request fails only if waiting would not help, and
// nothing is left at the end.
func TestBudgetModel(t *testing.T) {
	for seed := range testkit.Shorter[uint64](300, 60) {
		b := New(modelLimit)
		b.contenders = modelContenders
		m := &model{T: t, random: rand.New(rand.NewPCG(seed, 0)), b: b, waiting: map[string][]*Reservation{}}
		for range 300 {
			m.step()
			m.check(seed)
		}
		m.drain()
		m.check(seed)
		require.Zero(t, b.used, "seed %d", seed)
		require.Empty(t, b.directories, "seed %d", seed)
		require.Empty(t, b.nodes, "seed %d", seed)
		require.Zero(t, b.short.Len(), "seed %d", seed)
		require.Zero(t, b.saved, "seed %d", seed)
	}
}

// step makes a random call.
func (m *model) step() {
	switch n := m.random.IntN(100); {
	case n < 35:
		m.Request()
	case n < 40:
		m.try()
	case n < 48 && len(m.given) > 0:
		m.given[m.random.IntN(len(m.given))].MarkSent()
	case n < 63 && len(m.given) > 0:
		m.create(m.given[m.random.IntN(len(m.given))])
	case n < 75 && len(m.creates) > 0:
		m.answer(take(m, &m.creates))
	case n < 87 && len(m.given) > 0:
		take(m, &m.given).End()
	case n < 96 && len(m.paths) > 0:
		m.b.Free(take(m, &m.paths))
	case n == 96 && len(m.paths) > 0:
		m.given = append(m.given, m.b.Inherit(m.paths[m.random.IntN(len(m.paths))]))
	case n == 97:
		m.b.EndSession()
		m.paths = nil
	case n == 98:
		m.reserveAhead()
	default:
		m.cancel()
	}
}

func (m *model) dir() string { return fmt.Sprintf("/%d", m.random.IntN(6)) }

// size is usually the size of a znode, sometimes another one, and sometimes that of several permits.
func (m *model) size() int {
	return modelBytes + []int{0, 0, 0, 0, 0, 0, 1, 7, 2 * modelBytes, 7 * modelBytes}[m.random.IntN(10)]
}

func (m *model) Request() {
	b, dir, bytes := m.b, m.dir(), m.size()
	hasRoom := m.hasRoom(dir, bytes)
	p, err := b.Request(dir, bytes)
	switch m.requireSize(p, err, bytes); {
	case err != nil:
		require.ErrorIs(m, err, zkutil.ErrSessionFull)
		require.False(m, hasRoom, "refused although waiting would help")
	case p.given == nil:
		require.Empty(m, m.waiting[dir], "overtakes those who wait")
		m.given = append(m.given, p)
	default:
		require.True(m, hasRoom, "waits for bytes of other directories")
		m.waiting[dir] = append(m.waiting[dir], p)
	}
}

// hasRoom reports whether the bytes of a directory and the free bytes are enough for a request.
func (m *model) hasRoom(dir string, bytes int) bool {
	free := m.b.limit - m.b.used
	if d := m.b.directories[dir]; d != nil {
		free += d.bytes
	}
	return bytes <= free
}

func (m *model) try() {
	dir, bytes := m.dir(), m.size()
	hasRoom := m.hasRoom(dir, bytes)
	p, err := m.b.TryReserve(dir, bytes)
	switch m.requireSize(p, err, bytes); {
	case err == nil:
		m.given = append(m.given, p)
	case hasRoom:
		require.ErrorIs(m, err, zkutil.ErrNotAcquired)
	default:
		require.ErrorIs(m, err, zkutil.ErrSessionFull)
	}
}

func (m *model) reserveAhead() {
	dir, bytes := m.dir(), m.size()
	hasRoom := bytes <= m.b.limit-m.b.used
	p, err := m.b.ReserveAhead(dir, bytes)
	m.requireSize(p, err, bytes)
	require.Equal(m, hasRoom, err == nil)
	if err == nil {
		m.given = append(m.given, p)
	}
}

func (m *model) requireSize(p *Reservation, err error, bytes int) {
	require.True(m, err != nil || p.bytes == bytes)
}

// create begins a create. It takes bytes that the place lacks, for example because the previous znode still exists.
func (m *model) create(p *Reservation) {
	b, lacks := m.b, max(0, modelBytes-p.bytes)
	hadRoom := lacks <= b.limit-b.used
	if lacks > 0 && m.random.IntN(4) > 0 {
		return
	}
	c, err := p.Begin(modelBytes)
	if err != nil {
		require.ErrorIs(m, err, zkutil.ErrContenderLost)
		require.False(m, hadRoom, "lost although it fits")
		return
	}
	require.Equal(m, modelBytes, c.bytes)
	m.creates = append(m.creates, c)
}

// answer reports that the znode exists, or that it does not.
func (m *model) answer(c *Charge) {
	if m.random.IntN(3) == 0 {
		c.End()
		return
	}
	m.made++
	m.paths = append(m.paths, fmt.Sprintf("/node-%d", m.made))
	c.Bind(m.paths[len(m.paths)-1])
}

// cancel ends one of the waiters, anywhere in the queue.
func (m *model) cancel() {
	for dir, waiting := range m.waiting {
		if len(waiting) > 0 {
			i := m.random.IntN(len(waiting))
			p := waiting[i]
			m.waiting[dir] = slices.Delete(waiting, i, i+1)
			p.End()
			return
		}
	}
}

// check compares the budget with the places and the charges of the model.
func (m *model) check(seed uint64) {
	b, used := m.b, 0
	for dir, waiting := range m.waiting {
		for len(waiting) > 0 && waiting[0].IsGiven() {
			m.given, waiting = append(m.given, waiting[0]), waiting[1:]
		}
		m.waiting[dir] = waiting
		for i, p := range waiting {
			m.must(!p.IsGiven(), seed, "given before an earlier one")
			isFirst, r := i == 0, b.directories[dir]
			fits := p.bytes <= r.saved || b.used-r.saved+p.bytes <= b.limit
			m.must(!isFirst || r.calls >= b.contenders || r.unsent > 0 || !fits, seed, "waits for nothing")
			m.must(p.bytes <= r.bytes, seed, "depends on other directories")
		}
	}
	for _, p := range m.given {
		used += p.bytes
	}
	for _, c := range m.creates {
		used += c.bytes
	}
	for _, path := range m.paths {
		used += b.nodes[path].bytes
	}
	m.checkUsage(seed)
	saved := 0
	for _, r := range b.directories {
		saved += r.saved
		most := 0
		for e := r.waiters.Front(); e != nil; e = e.Next() {
			most = max(most, e.Value.(*Reservation).bytes)
		}
		m.must(r.saved == 0 || r.bytes == most, seed, "more is saved than the waiters need")
	}
	m.must(saved == b.saved, seed, "the saved bytes are miscounted")
	m.must(used+saved == b.used, seed, "the bytes are miscounted")
	m.must(b.used <= b.limit, seed, "beyond the limit")
}

// checkUsage compares the usage that the budget reports.
func (m *model) checkUsage(seed uint64) {
	unnamed, waiters := map[string]bool{}, 0
	for _, waiting := range m.waiting {
		waiters += len(waiting)
	}
	for _, p := range m.given {
		if p.bytes > 0 {
			unnamed[p.directory.dir] = true
		}
	}
	for _, c := range m.creates {
		unnamed[c.reservation.directory.dir] = true
	}
	paths, dirs := m.b.Nodes()
	m.must(slices.Equal(paths, slices.Sorted(slices.Values(m.paths))), seed, "wrong paths")
	m.must(slices.Equal(dirs, slices.Sorted(maps.Keys(unnamed))), seed, "wrong directories")
	m.must(m.b.Usage() == Usage{m.b.used, len(m.b.directories), len(m.paths), waiters}, seed, "wrong usage")
}

// must is require.True without the cost, because the model calls it a million times.
func (m *model) must(ok bool, seed uint64, fault string) {
	if !ok {
		m.Helper()
		require.Fail(m, fault, "seed %d", seed)
	}
}

// drain ends everything.
func (m *model) drain() {
	for len(m.given)+len(m.creates)+len(m.paths) > 0 {
		for len(m.given) > 0 {
			take(m, &m.given).End()
		}
		for len(m.creates) > 0 {
			m.answer(take(m, &m.creates))
		}
		for len(m.paths) > 0 {
			m.b.Free(take(m, &m.paths))
		}
		m.check(0)
	}
	for _, waiting := range m.waiting {
		require.Empty(m, waiting)
	}
}

// take removes a random element.
func take[T any](m *model, from *[]T) T {
	i := m.random.IntN(len(*from))
	e := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return e
}

// A directory that lacks bytes gets bytes that become free elsewhere.
func TestFreedBytesReachTheDirectoryThatLacksThem(t *testing.T) {
	b := New(300)
	small, err := b.Request("/small", 100)
	require.NoError(t, err)
	large, err := b.Request("/large", 200)
	require.NoError(t, err)
	waiting, err := b.Request("/small", 100)
	require.NoError(t, err)
	require.False(t, waiting.IsGiven())
	large.End()
	require.False(t, waiting.IsGiven(), "the first create was not sent")
	small.MarkSent()
	require.True(t, waiting.IsGiven())
}

// A twin counts, even across the limit.
func TestTwinIsCharged(t *testing.T) {
	b := New(100)
	p, err := b.Request("/d", 100)
	require.NoError(t, err)
	c, err := p.Begin(100)
	require.NoError(t, err)
	c.Bind("/d/a")
	b.AddTwin("/d/a", "/d/b")
	b.AddTwin("/d/a", "/d/b")
	require.Equal(t, 100+len("/d/b")+LengthField, b.used)
	p.End()
	b.Free("/d/a")
	_, err = b.Request("/e", 100)
	require.ErrorIs(t, err, zkutil.ErrSessionFull)
	b.Free("/d/b")
	require.Zero(t, b.used)
}
