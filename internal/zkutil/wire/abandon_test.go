package wire

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// recordingConn is a connection that records whether it was closed. Reads end at once.
type recordingConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *recordingConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *recordingConn) Close() error                     { c.closed.Store(true); return nil }
func (c *recordingConn) SetReadDeadline(time.Time) error  { return nil }
func (c *recordingConn) SetDeadline(time.Time) error      { return nil }
func (c *recordingConn) SetWriteDeadline(time.Time) error { return nil }
func (c *recordingConn) Write(b []byte) (int, error)      { return len(b), nil }

// The socket of an abandoned line is closed with the wire, even if the server hung up, and zk.Conn
// closed the line, at the same time as the owner abandoned it.
func TestAbandonedLineIsClosed(t *testing.T) {
	conn := &recordingConn{}
	w := newTestWire(t, &testOwner{period: time.Second, patience: time.Second, isSaving: true}, conn)
	c, err := w.Dial("tcp", "x:1", 0)
	require.NoError(t, err)
	l := c.(*Line)
	l.finishHandshake(1, 6*time.Second)
	require.NoError(t, l.sendFrame(7, proto.OpMulti, []byte("heartbeat")))
	_, err = l.Read(make([]byte, 4)) // the server hangs up: zk.Conn's reader ends
	require.ErrorIs(t, err, io.EOF)
	l.Abandon()                                  // the owner, at the same time
	_ = l.Close()                                // zk.Conn, as it always does
	w.DropAbandoned(time.Now().Add(time.Second)) // the next proof
	w.Close()
	require.True(t, conn.closed.Load(), "the socket is open after Close")
}

// Nothing is left to read an abandoned line for once it is abandoned already, or the wire is closed.
func TestAbandonWithoutANeedForTheSocket(t *testing.T) {
	for name, before := range map[string]func(w *Wire, l *Line){
		"again":            func(_ *Wire, l *Line) { l.Abandon() },
		"in a closed wire": func(w *Wire, _ *Line) { w.Close() },
	} {
		w := newTestWire(t, &testOwner{period: time.Second, patience: time.Second, isSaving: true}, &recordingConn{})
		c, err := w.Dial("tcp", "x:1", 0)
		require.NoError(t, err)
		l := c.(*Line)
		l.finishHandshake(1, 6*time.Second)
		require.NoError(t, l.sendFrame(7, proto.OpMulti, []byte("heartbeat")))
		before(w, l)
		abandoned := len(w.abandoned)
		l.Abandon()
		require.Len(t, w.abandoned, abandoned, name)
		w.Close()
	}
}

// answers is a Receiver that stores its calls.
type answerChan chan Answer

func (r answerChan) Receive(a Answer) { r <- a }

// The owner abandons a line with an engine's request in flight. The caller gets its answer at once, because no reader
// would deliver it later.
func TestAbandonGivesOwnRequestsUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newTestWire(t, &testOwner{period: time.Second, patience: time.Second, isSaving: true}, &recordingConn{})
		c, err := w.Dial("tcp", "x:1", 0)
		require.NoError(t, err)
		l := c.(*Line)
		l.finishHandshake(1, 6*time.Second)
		got := make(answerChan, 2)
		l.Send(&Request{Op: proto.OpMulti, Checks: []string{"/"}, To: got})
		synctest.Wait()
		require.True(t, l.contact.hasProofInFlightAfter(time.Time{}), "not sent")
		l.Abandon()
		require.Len(t, got, 1)
		require.ErrorIs(t, (<-got).Err, zk.ErrConnectionClosed)
		l.Send(&Request{Op: proto.OpMulti, Checks: []string{"/"}, To: got})
		require.Len(t, got, 1)
		require.ErrorIs(t, (<-got).Err, zk.ErrNoServer)
		_ = l.Close()
		w.Close()
		require.Empty(t, got)
	})
}
