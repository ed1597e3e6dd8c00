package wire

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Where reads extend no session, a read does not end a gap, and a ping does. A write right after a read is worth as much as one without
// the read.
func TestReadsEndNoGapOfABoundSession(t *testing.T) {
	const timeout = 30 * time.Second
	for isBound, worth := range map[bool]time.Duration{false: timeout * 2 / 3, true: timeout - timeout/12 - timeout*2/5} {
		now := time.Unix(1000, 0)
		c := newContact(func() time.Time { return now }, &atomic.Bool{})
		send := func(op int32) {
			_, err := c.sendInTurn([]sentFrame{{xid: 1, op: op}}, func() error { return nil })
			require.NoError(t, err)
		}
		c.setBound(isBound)
		c.noteHandshake(now, timeout)
		for range 10 { // reads every T/25, for 2T/5
			now = now.Add(timeout / 25)
			send(proto.OpGetData)
		}
		send(proto.OpMulti)
		require.Equal(t, worth, c.proofLimit(now, timeout*2/3, timeout).Sub(now), "bound: %v", isBound)
	}
}

// A session without holds sends a ping after T/3 without one or a write; one with holds leaves that to others.
func TestPingsThatAreTransactionsAreSaved(t *testing.T) {
	const timeout = 30 * time.Second
	now := time.Unix(1000, 0)
	var isHolding atomic.Bool
	c := newContact(func() time.Time { return now }, &isHolding)
	require.False(t, c.savesPings())
	c.setBound(true)
	c.noteHandshake(now, timeout)
	require.True(t, c.savesPings())
	now = now.Add(timeout/3 - time.Millisecond)
	require.False(t, c.isPingDue(timeout/10, timeout))
	now = now.Add(time.Millisecond)
	require.True(t, c.isPingDue(timeout/10, timeout))
	isHolding.Store(true)
	require.False(t, c.savesPings())
}

// Only a password of zero bytes marks a server that resumes no session.
func TestEmptyPassword(t *testing.T) {
	require.True(t, isEmptyPassword(make([]byte, 16)))
	require.True(t, isEmptyPassword(nil))
	require.False(t, isEmptyPassword([]byte{0, 0, 1}))
}
