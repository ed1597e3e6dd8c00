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
	m.first = m.request("/many", 100)
	for range 4 {
		m.holders = append(m.holders, m.request("/x", 100))
	}
	for range 4 {
		m.waiting = append(m.waiting, m.request("/x", 100))
	}
	return m
}

// request returns a reservation, which is granted or waits. If it is granted, its create is sent.
func (m *shortage) request(dir string, bytes int) *Reservation {
	m.Helper()
	r, err := m.b.Request(dir, bytes)
	if err != nil {
		m.Fatal(err)
	}
	send(r)
	return r
}

// send sends the creates of reservations until the first one that still waits, and returns the number of creates. The server
// numbers creates in this order, so the budget grants a waiting reservation only after the previous create.
func send(reservations ...*Reservation) (sent int) {
	for _, r := range reservations {
		if !r.IsGiven() {
			break
		}
		r.MarkSent()
		sent++
	}
	return sent
}

// end ends reservations.
func end(reservations ...*Reservation) {
	for _, r := range reservations {
		r.End()
	}
}

// requireFull requires that the session refuses a request, with and without waiting.
func (m *shortage) requireFull(dir string, bytes int) {
	m.Helper()
	_, err := m.b.Request(dir, bytes)
	require.ErrorIs(m, err, zkutil.ErrSessionFull)
	_, err = m.b.TryReserve(dir, bytes)
	require.ErrorIs(m, err, zkutil.ErrSessionFull)
}

// A contender that needs more bytes than its directory has would have to wait for other directories.
func TestLargeContenderFailsAtOnceInAFullSession(t *testing.T) {
	m := newShortage(t)
	m.requireFull("/many", 101)
	m.requireFull("/many", 300)
	m.requireFull("/x", 401)
}

func TestDirectoryGivesFreedBytesToItsOwnWaiters(t *testing.T) {
	m := newShortage(t)
	end(m.holders[0])
	m.requireFull("/many", 101)
	require.Equal(t, 1, send(m.waiting...))
}

func TestTryFailsWhereARequestWouldWait(t *testing.T) {
	m := newShortage(t)
	end(m.holders[0])
	_, err := m.b.TryReserve("/many", 100)
	require.ErrorIs(t, err, zkutil.ErrNotAcquired)
}

// requestLarge frees 200 bytes, and returns a waiter that needs 300.
func (m *shortage) requestLarge() *Reservation {
	m.Helper()
	end(m.waiting...)
	end(m.holders[:2]...)
	return m.request("/many", 300)
}

// No other contender takes the bytes that a waiter reserves.
func TestWaiterReservesMissingBytes(t *testing.T) {
	m := newShortage(t)
	large := m.requestLarge()
	require.False(t, large.IsGiven(), "200 bytes are free")
	m.requireFull("/y", 100)
}

func TestReservedBytesAreGrantedWithTheDirectorysOwn(t *testing.T) {
	m := newShortage(t)
	large := m.requestLarge()
	end(m.first)
	require.Equal(t, 1, send(large))
	m.requireFull("/y", 100)
}

func TestReservedBytesAreFreeAfterTheEndOfTheWaiter(t *testing.T) {
	m := newShortage(t)
	large := m.requestLarge()
	end(m.first)
	require.Equal(t, 1, send(large))
	end(large)
	require.True(t, m.request("/y", 300).IsGiven())
}

// requestMost returns a waiter that needs more bytes than all others in /x, and one in /many. 50 bytes of /x are free for the
// latter.
func (m *shortage) requestMost() (most, other *Reservation) {
	m.Helper()
	return m.request("/x", 350), m.request("/many", 100)
}

// A directory keeps the bytes that its largest waiter needs, while other waiters are ahead.
func TestDirectoryKeepsBytesForItsWaiters(t *testing.T) {
	m := newShortage(t)
	most, other := m.requestMost()
	end(m.holders[:3]...)
	require.Equal(t, 3, send(m.waiting...))
	end(m.waiting[:3]...)
	require.Equal(t, 1, send(m.waiting[3]))
	require.False(t, other.IsGiven(), "50 bytes are free")
	end(m.waiting[3])
	require.False(t, most.IsGiven(), "300 of 350 bytes are free")
}

// A directory keeps bytes that become free piece by piece, until its largest waiter has enough.
func TestLargestWaiterIsGrantedTheKeptBytes(t *testing.T) {
	m := newShortage(t)
	most, other := m.requestMost()
	end(m.waiting...)
	for _, r := range m.holders {
		require.Zero(t, send(most))
		end(r)
	}
	require.Equal(t, 1, send(most))
	require.False(t, other.IsGiven(), "50 bytes are free")
}

func TestKeptBytesAreFreeAfterTheEndOfTheLargestWaiter(t *testing.T) {
	m := newShortage(t)
	most, other := m.requestMost()
	end(m.waiting...)
	end(m.holders...)
	require.Equal(t, 1, send(most))
	end(most)
	require.True(t, other.IsGiven())
}

// When the most demanding waiter gives up, the directory frees the bytes that the other waiters do not need.
func TestWaiterFreesBytesOnCancel(t *testing.T) {
	m := newShortage(t)
	most, other := m.requestMost()
	end(m.waiting[:3]...)
	end(m.holders...)
	require.Equal(t, 1, send(m.waiting[3]))
	m.requireFull("/z", 100)
	end(most)
	require.Equal(t, 1, send(other))
	require.True(t, m.request("/z", 100).IsGiven())
}

// A directory that gets more bytes, here because the deletion of its first znode is not confirmed, frees as many of its kept
// bytes.
func TestDirectoryFreesSurplus(t *testing.T) {
	m := &shortage{T: t, b: New(500)}
	first, second := m.request("/x", 100), m.request("/x", 100)
	m.request("/filler", 240)
	large := m.request("/x", 200)
	end(second)
	require.False(t, large.IsGiven(), "160 of 200 bytes are there")
	for _, bytes := range []int{100, 50} {
		_, err := first.Begin(bytes)
		require.NoError(t, err)
	}
	require.True(t, m.request("/z", 60).IsGiven())
}
