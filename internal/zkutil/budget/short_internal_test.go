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
	holders []*Reservation // of /x
	waiting []*Reservation // for /x
}

func newShortage(t *testing.T) *shortage {
	t.Helper()
	m := &shortage{T: t, b: New(500)}
	m.request("/many", 100)
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

// No other contender takes the bytes that a waiter reserves.
func TestWaiterReservesMissingBytes(t *testing.T) {
	m := newShortage(t)
	end(m.waiting...)
	end(m.holders[:2]...)
	large := m.request("/many", 300)
	require.False(t, large.IsGiven(), "200 bytes are free")
	m.requireFull("/y", 100)
}

// A directory keeps the bytes that its largest waiter needs, while other waiters are ahead.
func TestDirectoryKeepsBytesForItsWaiters(t *testing.T) {
	m := newShortage(t)
	most, other := m.request("/x", 350), m.request("/many", 100)
	end(m.holders[:3]...)
	require.Equal(t, 3, send(m.waiting...))
	end(m.waiting[:3]...)
	require.Equal(t, 1, send(m.waiting[3]))
	require.False(t, other.IsGiven(), "50 bytes are free")
	end(m.waiting[3])
	require.False(t, most.IsGiven(), "300 of 350 bytes are free")
}
