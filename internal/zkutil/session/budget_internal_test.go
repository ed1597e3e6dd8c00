package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// model plays calls and znodes on a budget, and compares it with a count of its own.
type model struct {
	*testing.T
	random  *rand.Rand
	s       *Session
	waiting map[string][]*Place // by directory, in the order in which they came
	given   []*Place
	creates []*charge // not answered
	paths   []string  // of znodes that exist
	made    int
}

const (
	modelLimit, modelContenders = 1000, 3
	modelBytes                  = 100 // of most znodes
)

// Whatever calls and servers do: the bytes never exceed the limit, nobody waits who could go on, places are given in the order in
// which they were asked for, a directory in use refuses nobody, nobody takes bytes that are collected for another, and nothing is
// left at the end.
func TestBudgetModel(t *testing.T) {
	for seed := range testkit.Shorter[uint64](300, 60) {
		s := &Session{budget: newBudget(modelLimit)}
		s.budget.contenders = modelContenders
		m := &model{T: t, random: rand.New(rand.NewPCG(seed, 0)), s: s, waiting: map[string][]*Place{}}
		for range 300 {
			collector, used := s.budget.large.Front(), s.budget.used
			if mayTake := m.step(); collector != nil && collector == s.budget.large.Front() && !mayTake {
				require.LessOrEqual(t, s.budget.used, used, "seed %d: taken from those who wait for many", seed)
			}
			m.check(seed)
		}
		m.drain()
		m.check(seed)
		b := s.budget
		require.Zero(t, b.used, "seed %d", seed)
		require.Nil(t, b.collector, "seed %d", seed)
		require.Empty(t, b.rooms, "seed %d", seed)
		require.Empty(t, b.nodes, "seed %d", seed)
		require.Zero(t, b.short.Len(), "seed %d", seed)
	}
}

// step reports whether it may take bytes that are collected for a contender: in a round, and for whoever waits for nobody.
func (m *model) step() (mayTake bool) {
	switch n := m.random.IntN(100); {
	case n < 35:
		m.ask()
	case n < 40:
		m.try()
	case n < 48 && len(m.given) > 0:
		m.given[m.random.IntN(len(m.given))].noteSent()
	case n < 63 && len(m.given) > 0:
		return m.create(m.given[m.random.IntN(len(m.given))])
	case n < 75 && len(m.creates) > 0:
		m.answer(take(m, &m.creates))
	case n < 87 && len(m.given) > 0:
		take(m, &m.given).End()
	case n < 96 && len(m.paths) > 0:
		m.s.budget.gone(take(m, &m.paths))
	case n == 96 && len(m.paths) > 0:
		m.given = append(m.given, m.s.NextPlace(m.paths[m.random.IntN(len(m.paths))]))
	case n == 97:
		m.s.budget.endSession()
		m.paths = nil
	case n == 98 && m.s.budget.collector != nil:
		m.s.budget.letOthersPass(m.s.budget.collector)
		return true
	case n == 99 && m.random.IntN(2) == 0:
		if p, err := m.s.ExtraPlace(m.dir(), m.size()); err == nil {
			m.given = append(m.given, p)
		}
		return true
	default:
		m.cancel()
	}
	return false
}

func (m *model) dir() string { return fmt.Sprintf("/%d", m.random.IntN(6)) }

// size is that of a znode most of the time, sometimes another, and sometimes that of several permits.
func (m *model) size() int {
	return modelBytes + []int{0, 0, 0, 0, 0, 0, 1, 7, 2 * modelBytes, 7 * modelBytes}[m.random.IntN(10)]
}

func (m *model) ask() {
	b, dir, bytes := m.s.budget, m.dir(), m.size()
	wasEmpty, hadRoom := m.isEmpty(dir), b.used+bytes <= b.limit && b.large.Len() == 0
	p, err := b.ask(dir, bytes)
	switch {
	case err != nil:
		require.ErrorIs(m, err, zkutil.ErrSessionFull)
		require.True(m, wasEmpty, "a directory in use refuses nobody")
		require.False(m, hadRoom, "refused although it fits")
	case p.given == nil:
		require.Empty(m, m.waiting[dir], "overtakes those who wait")
		m.given = append(m.given, p)
	default:
		require.False(m, wasEmpty, "waits for nobody")
		m.waiting[dir] = append(m.waiting[dir], p)
	}
}

// isEmpty reports whether a directory has no contender. A place of NextPlace may be all that it has.
func (m *model) isEmpty(dir string) bool {
	r := m.s.budget.rooms[dir]
	return r == nil || r.isEmpty()
}

func (m *model) try() {
	dir, bytes := m.dir(), m.size()
	isUsed := !m.isEmpty(dir)
	p, err := m.s.TryPlace(dir, bytes)
	switch {
	case err == nil:
		m.given = append(m.given, p)
	case isUsed:
		require.ErrorIs(m, err, zkutil.ErrNotAcquired)
	default:
		require.ErrorIs(m, err, zkutil.ErrSessionFull)
	}
}

// create begins a create. It takes bytes that the place lacks, for example because the one before it has left a znode.
func (m *model) create(p *Place) (lacksSome bool) {
	b, lacks := m.s.budget, max(0, modelBytes-p.bytes)
	hadRoom := lacks <= b.limit-b.used
	if lacks > 0 && m.random.IntN(4) > 0 {
		return false
	}
	c, err := p.begin(modelBytes)
	if err != nil {
		require.ErrorIs(m, err, zkutil.ErrContenderLost)
		require.False(m, hadRoom, "lost although it fits")
		return false
	}
	m.creates = append(m.creates, c)
	return lacks > 0
}

// answer tells that the znode exists, or that it does not.
func (m *model) answer(c *charge) {
	if m.random.IntN(3) == 0 {
		c.end()
		return
	}
	m.made++
	m.paths = append(m.paths, fmt.Sprintf("/node-%d", m.made))
	c.settle(m.paths[len(m.paths)-1])
}

// cancel ends one of those who wait, from anywhere in the queue.
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
	b, used := m.s.budget, 0
	for dir, waiting := range m.waiting {
		for len(waiting) > 0 && isDone(waiting[0].given) {
			m.given, waiting = append(m.given, waiting[0]), waiting[1:]
		}
		m.waiting[dir] = waiting
		for i, p := range waiting {
			require.False(m, isDone(p.given), "seed %d: given before an earlier one", seed)
			isFirst, r := i == 0, b.rooms[dir]
			mayTake := b.large.Len() == 0 || b.large.Front() == r.large
			fits := p.bytes <= r.saved || mayTake && b.used-r.saved+p.bytes <= b.limit
			require.False(m, isFirst && r.calls < b.contenders && r.unsent == 0 && fits, "seed %d: waits for nothing", seed)
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
	saved := 0
	for _, r := range b.rooms {
		saved += r.saved
		require.True(m, r.saved == 0 || b.large.Len() > 0 && r.firstWaiter().bytes >= r.saved, "seed %d: saved for nobody", seed)
	}
	require.Equal(m, saved, b.saved, "seed %d", seed)
	require.Equal(m, used+saved, b.used, "seed %d", seed)
	require.LessOrEqual(m, b.used, b.limit, "seed %d", seed)
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
			m.s.budget.gone(take(m, &m.paths))
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

// A directory that lacks bytes gets what becomes free elsewhere.
func TestBytesGoToWhoeverLacksThem(t *testing.T) {
	b := newBudget(300)
	small, err := b.ask("/small", 100)
	require.NoError(t, err)
	large, err := b.ask("/large", 200)
	require.NoError(t, err)
	waiting, err := b.ask("/small", 150)
	require.NoError(t, err)
	small.End()
	require.False(t, isDone(waiting.given), "there are 100 bytes")
	large.End()
	require.True(t, isDone(waiting.given))
}

// Bytes are collected for a contender that needs more than its directory has. Then the directory gets more, because the
// deletion of its first znode is not confirmed: from then on the contender waits for these, and others get what is free.
func TestBytesAreNoLongerCollected(t *testing.T) {
	b := newBudget(1000)
	take := func(dir string, bytes int) *Place {
		p, err := b.ask(dir, bytes)
		require.NoError(t, err)
		return p
	}
	first, other := take("/a", 100), take("/b", 60)
	other.noteSent()
	_, err := first.begin(100)
	require.NoError(t, err)
	first.noteSent()
	take("/filler", 680)
	large, small := take("/a", 170), take("/b", 60)
	require.False(t, isDone(large.given))
	require.False(t, isDone(small.given), "160 bytes are free, and collected")
	_, err = first.begin(100)
	require.NoError(t, err)
	require.Nil(t, b.collector)
	require.True(t, isDone(small.given), "60 bytes are free")
}

// A twin counts, even across the limit.
func TestTwinIsCharged(t *testing.T) {
	b := newBudget(100)
	p, err := b.ask("/d", 100)
	require.NoError(t, err)
	c, err := p.begin(100)
	require.NoError(t, err)
	c.settle("/d/a")
	b.addTwin("/d/a", "/d/b")
	b.addTwin("/d/a", "/d/b")
	require.Equal(t, 100+len("/d/b")+lengthField, b.used)
	p.End()
	b.gone("/d/a")
	_, err = b.ask("/e", 100)
	require.ErrorIs(t, err, zkutil.ErrSessionFull)
	b.gone("/d/b")
	require.Zero(t, b.used)
}
