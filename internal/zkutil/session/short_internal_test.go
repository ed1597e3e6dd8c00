package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// shortage is a budget of 500 bytes. /many has 100, and somebody there waits for more. /x has the other 400, in four places, and
// as many wait there.
type shortage struct {
	*testing.T
	s       *Session
	many    *Place
	holders []*Place // of /x
	waiting []*Place // for /x
}

func newShortage(t *testing.T, bytes int) *shortage {
	t.Helper()
	m := &shortage{T: t, s: &Session{budget: newBudget(500)}}
	m.ask("/many", 100)
	for range 4 {
		m.holders = append(m.holders, m.ask("/x", 100))
	}
	for range 4 {
		m.waiting = append(m.waiting, m.ask("/x", 100))
	}
	m.many = m.ask("/many", bytes)
	require.False(t, isDone(m.many.given))
	return m
}

// ask asks for a place. If it is free, its znode is created.
func (m *shortage) ask(dir string, bytes int) *Place {
	m.Helper()
	p, err := m.s.budget.ask(dir, bytes)
	require.NoError(m, err)
	if p.given == nil {
		p.noteSent()
	}
	return p
}

// given requires that those who wait have a place, and creates their znodes.
func (m *shortage) given(places ...*Place) {
	m.Helper()
	for _, p := range places {
		require.True(m, isDone(p.given))
		p.noteSent()
	}
}

// Bytes that become free are collected for a large contender. Nobody else takes them, but the other directory keeps
// what its next contender needs, and goes on.
func TestBytesAreCollected(t *testing.T) {
	m := newShortage(t, 300)
	m.holders[0].End()
	m.holders[1].End()
	require.False(t, isDone(m.waiting[0].given))
	_, err := m.s.TryPlace("/x", 100)
	require.ErrorIs(t, err, zkutil.ErrNotAcquired)
	_, err = m.s.TryPlace("/y", 100)
	require.ErrorIs(t, err, zkutil.ErrSessionFull)
	_, err = m.s.budget.ask("/y", 100)
	require.ErrorIs(t, err, zkutil.ErrSessionFull)
	downgrade, err := m.s.ExtraPlace("/x", 100)
	require.NoError(t, err, "those who wait may wait for it")
	downgrade.End()

	later := m.ask("/many", 100)
	m.holders[2].End()
	m.given(m.many)
	require.False(t, isDone(m.waiting[0].given), "there is nothing left")
	m.holders[3].End()
	m.given(m.waiting[0])
	m.waiting[0].End()
	m.given(m.waiting[1])
	m.many.End()
	m.given(later, m.waiting[2], m.waiting[3])
}

// The last bytes of a directory stay there while somebody waits there, if they become free piece by piece too.
func TestDirectoryKeepsWhatItsNextContenderNeeds(t *testing.T) {
	m := newShortage(t, 450)
	last := m.holders[3]
	for _, path := range []string{"/x/1", "/x/2"} {
		c, err := last.begin(50)
		require.NoError(t, err)
		c.settle(path)
	}
	for _, p := range m.holders {
		p.End()
	}
	m.s.budget.gone("/x/1")
	require.False(t, isDone(m.waiting[0].given))
	m.s.budget.gone("/x/2")
	m.given(m.waiting[0])
	require.False(t, isDone(m.many.given))
}

// When the large contender gives up, the others get the bytes that were collected for it.
func TestCollectedForOneWhoGivesUp(t *testing.T) {
	m := newShortage(t, 300)
	m.holders[0].End()
	m.holders[1].End()
	m.many.End()
	m.given(m.waiting[:2]...)
	require.False(t, isDone(m.waiting[2].given))
	require.Nil(t, m.s.budget.collector)
}

// Those who need many bytes get them in the order in which they came, even if a later one needs fewer.
func TestCollectedInTurn(t *testing.T) {
	m := &shortage{T: t, s: &Session{budget: newBudget(500)}}
	m.ask("/many", 100)
	m.ask("/fewer", 100)
	for range 3 {
		m.holders = append(m.holders, m.ask("/x", 100))
	}
	many, fewer := m.ask("/many", 300), m.ask("/fewer", 200)
	m.holders[0].End()
	m.holders[1].End()
	require.False(t, isDone(fewer.given))
	m.holders[2].End()
	m.given(many)
	many.End()
	m.given(fewer)
}

// The contender that has the missing bytes may wait in another directory, behind a hold that stays. So others pass, after pauses that
// double.
func TestOthersPassNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newShortage(t, 300)
		m.holders[0].End()
		m.holders[1].End()
		began := time.Now()
		<-m.waiting[0].given
		require.Equal(t, firstRound, time.Since(began))
		m.waiting[0].noteSent()
		<-m.waiting[1].given
		require.Equal(t, 3*firstRound, time.Since(began))
		m.waiting[1].noteSent()
		synctest.Wait()
		m.many.End()
		require.Nil(t, m.s.budget.collector)
	})
}
