package wire

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// sendPings keeps the session active at the server. An idle session needs that once in T/4 alone, whatever else is
// sent. zk.Conn takes the answers for answers to its own pings.
func (l *Line) sendPings(timeout time.Duration) {
	interval := timeout / zkutil.PingsPerTimeout
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !l.wire.isInUse.Load() && !l.contact.isPingDue(interval, timeout) {
				continue
			}
			if err := l.sendFrame(proto.XidPing, proto.OpPing, pingFrame()); err != nil {
				return // zk.Conn notices by itself
			}
		case <-l.abandonDone:
			return
		case <-l.closeDone:
			return
		}
	}
}

// pingInTurn sends a ping. The caller has the slot contact.writing.
func (l *Line) pingInTurn() error {
	ping := []sentFrame{{xid: proto.XidPing, op: proto.OpPing}}
	_, err := l.contact.sendInTurn(ping, func() error { return l.writeBytes(pingFrame()) })
	return err
}

// pingFrame returns a ping as it is sent: length, xid −2, operation.
func pingFrame() []byte { return []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, proto.OpPing} }
