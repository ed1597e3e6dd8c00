package wire

import (
	"net"
	"testing"
	"time"
)

// testOwner is an owner with fixed times, which records the handshakes.
type testOwner struct {
	period, patience time.Duration
	isSaving         bool
	handshakes       []time.Duration // the timeouts granted
	events           []ownEvent      // those of watches that zk.Conn has not set
}

func (*testOwner) Now() time.Time                                   { return time.Now() }
func (o *testOwner) Period() time.Duration                          { return o.period }
func (o *testOwner) Patience() time.Duration                        { return o.patience }
func (*testOwner) LimitDial(p time.Duration) (time.Duration, error) { return p, nil }
func (*testOwner) RoundPause() time.Duration                        { return 0 }
func (o *testOwner) IsSaving() bool                                 { return o.isSaving }
func (*testOwner) OnLostHandshake(time.Time)                        {}
func (*testOwner) OnLateProof(SentWrite)                            {}
func (*testOwner) OnFailure(error, bool)                            {}
func (o *testOwner) OnEvent(event int32, path string) {
	o.events = append(o.events, ownEvent{event, path})
}

func (o *testOwner) OnHandshake(_ int64, timeout time.Duration, _ time.Time) time.Duration {
	o.handshakes = append(o.handshakes, timeout)
	return timeout
}

// ownEvent is what OnEvent was told.
type ownEvent struct {
	event int32
	path  string
}

// newTestWire returns a wire of o that dials conn each time.
func newTestWire(tb testing.TB, o *testOwner, conn net.Conn) *Wire {
	tb.Helper()
	w := New(tb.Context(), Config{Dialer: func(string, string, time.Duration) (net.Conn, error) { return conn, nil }}, o)
	tb.Cleanup(w.Close)
	return w
}

// pass waits in virtual time.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time
