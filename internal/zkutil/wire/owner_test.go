package wire

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// testOwner is an owner with fixed times, which records the handshakes.
type testOwner struct {
	period, patience time.Duration
	isSaving         bool
	handshakes       []time.Duration // the timeouts granted
	forgottenBy      []string        // the servers that have forgotten the session
	failure          error           // the latest of a dial or a handshake
	events           []ownEvent      // of watches that zk.Conn did not set
	closes           atomic.Int32    // calls of OnCloseSession
	conn             net.Conn        // that newTestWire's dialer returns
}

func (*testOwner) Now() time.Time                                   { return time.Now() }
func (o *testOwner) Period() time.Duration                          { return o.period }
func (o *testOwner) Patience() time.Duration                        { return o.patience }
func (*testOwner) LimitDial(p time.Duration) (time.Duration, error) { return p, nil }
func (*testOwner) RoundPause() time.Duration                        { return 0 }
func (*testOwner) IsInUse() bool                                    { return false }
func (o *testOwner) IsSaving() bool                                 { return o.isSaving }
func (*testOwner) OnGranted(int64, time.Duration, time.Time)        {}
func (*testOwner) OnLateProof(SentWrite)                            {}
func (o *testOwner) OnFailure(err error, _ dial.Refusal)            { o.failure = err }
func (o *testOwner) GiveUpAfter() time.Duration                     { return 6 * o.period }
func (o *testOwner) OnForgotten(server string)                      { o.forgottenBy = append(o.forgottenBy, server) }
func (*testOwner) OnPanic(any, []byte)                              {}
func (o *testOwner) OnCloseSession()                                { o.closes.Add(1) }
func (o *testOwner) OnEvent(event int32, path string) {
	o.events = append(o.events, ownEvent{event, path})
}

func (o *testOwner) OnHandshake(_ int64, timeout time.Duration) time.Duration {
	o.handshakes = append(o.handshakes, timeout)
	return timeout
}

// ownEvent is a call of OnEvent.
type ownEvent struct {
	event int32
	path  string
}

// newTestWire returns a wire of o. Each dial returns o.conn, at first conn.
func newTestWire(tb testing.TB, o *testOwner, conn net.Conn) *Wire {
	tb.Helper()
	o.conn = conn
	w := New(tb.Context(), dial.Config{Dialer: func(string, string, time.Duration) (net.Conn, error) { return o.conn, nil }}, o)
	tb.Cleanup(w.Close)
	return w
}

// pass lets virtual time pass, including all events due at the end of d.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
