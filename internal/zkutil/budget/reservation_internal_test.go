package budget

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// requireUsed requires that a znode of all remaining bytes fits, and no longer one.
func requireUsed(t *testing.T, b *Budget, used int) {
	t.Helper()
	_, err := b.ReserveAhead("/any", b.limit-used+1)
	require.ErrorIs(t, err, zkutil.ErrSessionFull)
	r, err := b.ReserveAhead("/any", b.limit-used)
	require.NoError(t, err)
	r.End()
}

// znode creates a znode whose reservation is over.
func znode(t *testing.T, b *Budget, path string) {
	t.Helper()
	r, err := b.TryReserve(path[:strings.LastIndex(path, "/")], len(path)+LengthField)
	require.NoError(t, err)
	c, err := r.Begin(len(path) + LengthField)
	require.NoError(t, err)
	c.Bind(path)
	r.End()
}

// The session closes by one transaction, which must fit into half of a frame of 1 MiB.
func TestDefaultIsHalfAFrame(t *testing.T) {
	require.Equal(t, 1<<20, 2*DefaultMaxBytes)
	requireUsed(t, New(0), 0)
}

// The heir of a znode gets its bytes after its deletion, even though another contender of the directory waits for bytes.
func TestHeirGetsTheBytesOfItsZnode(t *testing.T) {
	b := New(100)
	require.Nil(t, b.Inherit("/d/none"))
	znode(t, b, "/d/"+strings.Repeat("x", 100-LengthField-3))
	path, _ := b.Nodes()
	waiting, err := b.Request("/d", 100)
	require.NoError(t, err)
	heir := b.Inherit(path[0])
	require.True(t, heir.IsGiven())
	_, err = heir.Begin(100)
	require.ErrorIs(t, err, zkutil.ErrContenderLost, "the znode exists")
	b.Free(path[0])
	require.False(t, waiting.IsGiven())
	c, err := heir.Begin(100)
	require.NoError(t, err)
	requireUsed(t, b, 100)
	c.End()
	require.False(t, waiting.IsGiven(), "the heir may try again")
	heir.End()
	require.True(t, waiting.IsGiven())
}

// A waiting caller gets its reservation, or the end of its context, which leaves nothing behind.
func TestAwait(t *testing.T) {
	b := New(100)
	first, err := b.Request("/d", 100)
	require.NoError(t, err)
	first.MarkSent()
	second, err := b.Request("/d", 100)
	require.NoError(t, err)
	third, err := b.Request("/d", 100)
	require.NoError(t, err)
	require.Equal(t, Usage{100, 1, 0, 2}, b.Usage())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = second.Await(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Usage{100, 1, 0, 1}, b.Usage())
	first.End()
	require.NoError(t, third.Await(t.Context()))
	require.False(t, second.IsGiven())
	third.End()
	require.Equal(t, Usage{}, b.Usage())
}

// Bytes that a twin or a long path takes beyond the limit stop requests for free bytes, but no waiter for whom its own directory has kept
// bytes.
func TestNoWaiterStopsBecauseOfATwin(t *testing.T) {
	b := New(100)
	znode(t, b, "/e/a") // 8 bytes
	holder, err := b.Request("/d", 92)
	require.NoError(t, err)
	holder.MarkSent()
	waiting, err := b.Request("/d", 92)
	require.NoError(t, err)
	b.AddTwin("/e/a", "/e/b")
	b.AddTwin("/e/unknown", "/e/c")
	require.Equal(t, 108, b.Usage().Used)
	holder.End()
	require.True(t, waiting.IsGiven())
	waiting.End()
	requireUsed(t, b, 16)
	b.EndSession()
	requireUsed(t, b, 0)
	require.Equal(t, Usage{}, b.Usage())
}

// A reservation ahead of the queue does not delay waiters, and counts as a contender until it ends.
func TestReservationAhead(t *testing.T) {
	b := New(300)
	b.contenders = 2
	first, err := b.Request("/d", 100)
	require.NoError(t, err)
	waiting, err := b.Request("/d", 100)
	require.NoError(t, err)
	second, err := b.Request("/d", 100)
	require.NoError(t, err)
	ahead, err := b.ReserveAhead("/d", 100)
	require.NoError(t, err)
	require.True(t, ahead.IsGiven())
	requireUsed(t, b, 300) // 100 of them kept for the waiters
	first.End()
	require.True(t, waiting.IsGiven(), "although no create of the reservation ahead was sent")
	waiting.MarkSent()
	require.False(t, second.IsGiven(), "a contender too many")
	ahead.End()
	require.True(t, second.IsGiven())
}
