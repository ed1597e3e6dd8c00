package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// Servers that were emptied, or restored from a backup, lack transactions that a session saw. Each such server closes
// the connection instead of answering the session's handshake, because the handshake names a later zxid than the
// server's own (ZooKeeperServer.processConnectRequest). So zk.Conn never learns that its session is over, and keeps
// naming the later zxid forever.
//
// A server without a quorum, and a lagging follower, hang up in the same way, although the session lives on. A probe
// distinguishes the three cases. The probe opens a session of its own, and closes the new session at once. The answer
// to the close names a zxid that the quorum just committed. Zxids grow as long as an ensemble keeps its history:
//
//   - A server without a quorum doesn't answer the probe.
//   - A lagging follower answers with a later zxid than the session's, because the leader numbered the close. The
//     follower has caught up by then.
//   - A server that lost transactions answers with an earlier zxid.
//
// No probe is sent until the servers refused the session for the time returned by the owner's GiveUpAfter. If a probe
// then shows that a server lost transactions, the wire itself answers zk.Conn's handshake, as a server answers for an
// unknown session. zk.Conn reports that the session expired, forgets the zxid, and opens a new session with the next
// handshake.

// probesPerTimeout is the maximum number of probes of a server within GiveUpAfter.
const probesPerTimeout = 3

// maxSlowProbes bounds the patience with a probe, which doubles with each probe that took too long. A probe waits for two
// commits, and the quorum may be slow.
const maxSlowProbes = 5

// refusals are consecutive handshakes of one session that servers refused without an answer.
type refusals struct {
	since      time.Time            // of the first; zero: none
	probedAt   map[string]time.Time // when a server was last probed, by its name and address
	slowProbes int                  // that took too long
}

// claim has the last zxid and the session id that the request of a handshake names.
type claim struct{ zxid, sessionID int64 }

// claimOf reads the request of a handshake: length, protocol version, zxid, timeout, session id.
func claimOf(frame []byte) (c claim) {
	d := proto.NewDecoder(frame)
	_, _ = d.Int32(), d.Int32()
	c.zxid = d.Int64()
	_ = d.Int32()
	c.sessionID = d.Int64()
	return c
}

// explainRefusal adds the possible reasons to the error of a failed handshake.
func (l *Line) explainRefusal(err error) error {
	switch {
	case !dial.IsHangUp(err):
		return err
	case l.claim.sessionID == 0:
		_ = l.Conn.Close() // one socket at a time, because the explanation may open another one
		return l.attempt.ExplainHangUp(err)
	default:
		return fmt.Errorf("%w; or the servers lost transactions that this session has seen (emptied, or restored from a backup)", dial.ExplainHangUp(err))
	}
}

// answerForgotten is called after the handshake failed with err. The result true means that the session was
// abandoned, and that the next bytes of the line are the answer to the handshake of an expired session.
func (l *Line) answerForgotten(err error) bool {
	w := l.wire
	if !dial.IsHangUp(err) || l.claim.sessionID == 0 || !w.mayProbe(l.Server) {
		return false
	}
	_ = l.Conn.Close() // the server closed the other side; one socket at a time
	switch w.probe(l.Server, l.claim.zxid) {
	case noVerdict:
		return false
	case remembers:
		w.mu.Lock()
		w.refusals = refusals{}
		w.mu.Unlock()
		return false
	case forgot:
	}
	w.owner.OnForgotten(l.Server)
	l.in.Reset(bytes.NewReader(expiredAnswer()))
	return true
}

// mayProbe records that a server refused the session, and reports whether a probe is due.
func (w *Wire) mayProbe(server string) bool {
	now, giveUpAfter := w.owner.Now(), w.owner.GiveUpAfter()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.refusals
	if r.since.IsZero() {
		*r = refusals{since: now, probedAt: map[string]time.Time{}}
	}
	if w.isClosed || now.Sub(r.since) < giveUpAfter {
		return false
	}
	if last, isKnown := r.probedAt[server]; isKnown && now.Sub(last) < giveUpAfter/probesPerTimeout {
		return false
	}
	maps.DeleteFunc(r.probedAt, func(_ string, at time.Time) bool { return now.Sub(at) > giveUpAfter })
	r.probedAt[server] = now
	return true
}

// verdict is the result of a probe of a server.
type verdict int

const (
	noVerdict verdict = iota // the server takes no new sessions, or gives an answer that is not ZooKeeper's
	remembers                // the server is up to date with the session
	forgot
)

// probe opens a session at a server, closes the session, and compares the zxid of the close with seen. If the
// close is lost, the session times out after the owner's patience.
func (w *Wire) probe(server string, seen int64) verdict {
	patience := w.probePatience()
	conn, err := w.Dialer.Open("tcp", server, patience)
	if err != nil {
		return noVerdict
	}
	defer func() { _ = conn.Close() }()
	if !w.setProbe(conn) {
		return noVerdict
	}
	defer w.setProbe(nil)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return noVerdict
	}
	hello := proto.NewEncoder().Int32(0).Int64(0).Int32(int32(patience.Milliseconds())).Int64(0).Buffer(make([]byte, proto.PasswordLength))
	welcome, err := exchange(conn, hello)
	if err != nil {
		w.noteProbeFailure(err)
		return noVerdict
	}
	if _, _, id := welcome.Int32(), welcome.Int32(), welcome.Int64(); welcome.Err() != nil || id == 0 {
		return noVerdict
	}
	goodbye, err := exchange(conn, proto.NewEncoder().Int32(1).Int32(proto.OpCloseSession))
	if err != nil {
		w.noteProbeFailure(err)
		return noVerdict
	}
	_, zxid, code := goodbye.Int32(), goodbye.Int64(), goodbye.Int32()
	switch {
	case goodbye.Err() != nil:
		return noVerdict
	case code == proto.CodeOK && zxid >= seen:
		return remembers
	default:
		// A server that requires credentials refuses the close, and names no zxid. The accepted session has to
		// suffice, because it shows that the server has a quorum, and yet refused the old session all the time.
		return forgot
	}
}

// probePatience returns how long a probe may take.
func (w *Wire) probePatience() time.Duration {
	patience := w.owner.Patience()
	w.mu.Lock()
	defer w.mu.Unlock()
	return patience << w.refusals.slowProbes
}

// noteProbeFailure gives the next probe more time if this one took too long.
func (w *Wire) noteProbeFailure(err error) {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals.slowProbes = min(w.refusals.slowProbes+1, maxSlowProbes)
}

// exchange sends a frame, and reads the next one.
func exchange(conn net.Conn, request *proto.Encoder) (*proto.Decoder, error) {
	if _, err := conn.Write(request.Frame()); err != nil {
		return nil, err
	}
	const longest = 1 << 10
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > longest {
		return nil, errNotZooKeeper
	}
	body := make([]byte, size)
	_, err := io.ReadFull(conn, body)
	return proto.NewDecoder(body), err
}

// setProbe records the connection of a probe, so that Close can end the probe; nil means that no probe runs. setProbe
// returns false if the wire was closed.
func (w *Wire) setProbe(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probing = conn
	return !w.isClosed
}

// answerEnded answers zk.Conn's handshake for a session that ended with its connection. Nothing is sent.
func (l *Line) answerEnded() {
	l.in.Reset(bytes.NewReader(expiredAnswer()))
	_ = l.Conn.Close() // one socket at a time
}

// expiredAnswer returns a server's answer to the handshake of an expired session.
func expiredAnswer() []byte {
	return proto.NewEncoder().Int32(0).Int32(0).Int64(0).Buffer(make([]byte, proto.PasswordLength)).Frame()
}
