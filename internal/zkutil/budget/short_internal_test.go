package budget

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// shortage is a budget of 500 bytes, all of them in use. /many has a contender of 100 bytes. /x has four such contenders, and as
// many waiters.
type shortage struct {
	*testing.T
	b       *Budget
	first   *Reservation   // of /many
	holders []*Reservation // of /x
	waiting []*Reservation // for /x
}

func newShortage(t *testing.T) *shortage {
	t.Helper()
	m := &shortage{T: t, b: New(500)}
	m.first = m.Request("/many", 100)
	for range 4 {
		m.holders = append(m.holders, m.Request("/x", 100))
	}
	for range 4 {
		m.waiting = append(m.waiting, m.Request("/x", 100))
	}
	return m
}

// Request requests bytes. If they are granted, the first create is sent.
func (m *shortage) Request(dir string, bytes int) *Reservation {
	m.Helper()
	r, err := m.b.Request(dir, bytes)
	require.NoError(m, err)
	if r.given == nil {
		r.MarkSent()
	}
	return r
}

// requireFull requires that the session has no bytes for a request, with and without waiting.
func (m *shortage) requireFull(dir string, bytes int) {
	m.Helper()
	_, err := m.b.Request(dir, bytes)
	require.ErrorIs(m, err, zkutil.ErrSessionFull)
	_, err = m.b.TryReserve(dir, bytes)
	require.ErrorIs(m, err, zkutil.ErrSessionFull)
}

// given requires that the waiting reservations are granted, and sends their creates.
func (m *shortage) given(reservations ...*Reservation) {
	m.Helper()
	for _, r := range reservations {
		require.True(m, r.IsGiven())
		r.MarkSent()
	}
}

// A contender that needs more bytes than its directory has would have to wait for other directories.
func TestLargeContenderFailsAtOnceInAFullSession(t *testing.T) {
	m := newShortage(t)
	m.requireFull("/many", 101)
	m.requireFull("/many", 300)
	m.requireFull("/x", 401)
	m.holders[0].End()
	m.requireFull("/many", 101)
	_, err := m.b.TryReserve("/many", 100)
	require.ErrorIs(t, err, zkutil.ErrNotAcquired)
}

// A contender that has to wait reserves the bytes that its directory lacks at once, and nobody else takes these bytes.
func TestWaiterReservesMissingBytes(t *testing.T) {
	m := newShortage(t)
	for _, r := range m.waiting {
		r.End()
	}
	m.holders[0].End()
	m.holders[1].End()
	large := m.Request("/many", 300)
	require.False(t, large.IsGiven(), "200 bytes are free")
	m.requireFull("/y", 100)
	m.first.End()
	m.given(large)
	m.requireFull("/y", 100)
	large.End()
	m.Request("/y", 300)
}

// A directory keeps the bytes that its most demanding waiter needs, even when they become free piece by piece, and while other
// waiters are ahead.
func TestDirectoryKeepsBytesForItsWaiters(t *testing.T) {
	m := newShortage(t)
	many := m.Request("/x", 350)
	y := m.Request("/many", 100)
	for _, r := range m.holders[:3] {
		r.End()
	}
	m.given(m.waiting[:3]...)
	for _, r := range m.waiting[:3] {
		r.End()
	}
	m.given(m.waiting[3])
	require.False(t, y.IsGiven(), "50 bytes are free")
	m.waiting[3].End()
	require.False(t, many.IsGiven())
	m.holders[3].End()
	m.given(many)
	require.False(t, y.IsGiven(), "50 bytes are free")
	many.End()
	m.given(y)
}

// When the most demanding waiter gives up, the directory frees the bytes that the other waiters do not need.
func TestWaiterFreesBytesOnCancel(t *testing.T) {
	m := newShortage(t)
	many := m.Request("/x", 350)
	y := m.Request("/many", 100)
	for _, r := range m.waiting[:3] {
		r.End()
	}
	for _, r := range m.holders {
		r.End()
	}
	m.given(m.waiting[3])
	m.requireFull("/z", 100)
	many.End()
	m.given(y)
	m.Request("/z", 100)
}

// A directory that gets further bytes, here because the deletion of its first znode is not confirmed, frees as many of those that
// it has kept.
func TestDirectoryFreesSurplus(t *testing.T) {
	m := &shortage{T: t, b: New(500)}
	first, second := m.Request("/x", 100), m.Request("/x", 100)
	m.Request("/filler", 240)
	large := m.Request("/x", 200)
	second.End()
	require.False(t, large.IsGiven(), "160 of 200 bytes are there")
	for _, bytes := range []int{100, 50} {
		_, err := first.Begin(bytes)
		require.NoError(t, err)
	}
	m.Request("/z", 60)
}
