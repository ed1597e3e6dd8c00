package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The maximum number of contenders in one directory have a place, and the next one waits until one of them leaves. Another
// directory has room.
func TestContendersBeyondThoseOfADirectory(t *testing.T) {
	b := New(1 << 30)
	ask := func(dir string) *Reservation {
		p, err := b.Request(dir, 1)
		require.NoError(t, err)
		if p.given == nil {
			p.MarkSent()
		}
		return p
	}
	var places []*Reservation
	for range MaxContenders {
		places = append(places, ask("/m"))
		require.Nil(t, places[len(places)-1].given)
	}
	next := ask("/m")
	require.NotNil(t, next.given)
	require.Nil(t, ask("/other").given)
	require.False(t, next.IsGiven())
	places[0].End()
	require.True(t, next.IsGiven())
}

// The last byte of the budget is used, and no other.
func TestLastByteOfTheBudget(t *testing.T) {
	b := New(0)
	p, err := b.TryReserve("/m", DefaultMaxBytes)
	require.NoError(t, err)
	p.End()
	_, err = b.TryReserve("/m", DefaultMaxBytes+1)
	require.Error(t, err)
	require.Zero(t, b.used)
}
