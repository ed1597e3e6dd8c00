package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// namedCodes maps the codes of refusals to zk.Conn's errors.
var namedCodes = map[int32]error{ //nolint:gochecknoglobals // a constant table
	proto.CodeNoNode:                  zk.ErrNoNode,
	proto.CodeNoAuth:                  zk.ErrNoAuth,
	proto.CodeBadVersion:              zk.ErrBadVersion,
	proto.CodeNoChildrenForEphemerals: zk.ErrNoChildrenForEphemerals,
	proto.CodeNodeExists:              zk.ErrNodeExists,
	proto.CodeNotEmpty:                zk.ErrNotEmpty,
	proto.CodeSessionExpired:          zk.ErrSessionExpired,
	proto.CodeInvalidACL:              zk.ErrInvalidACL,
	proto.CodeAuthFailed:              zk.ErrAuthFailed,
	proto.CodeSessionMoved:            zk.ErrSessionMoved,
	proto.CodeBadArguments:            zk.ErrBadArguments,
	proto.CodeAPIError:                zk.ErrAPIError,
	proto.CodeClosing:                 zk.ErrClosing,
	proto.CodeNothing:                 zk.ErrNothing,
	proto.CodeReconfigDisabled:        zk.ErrReconfigDisabled,
}

// errorOf returns zk.Conn's error for a code.
func errorOf(code int32) error {
	if code == proto.CodeOK {
		return nil
	}
	if err, ok := namedCodes[code]; ok {
		return err
	}
	return fmt.Errorf("unknown error: %d", code) // as in zk.Conn
}

// decodeAnswer decodes the body of an answer, and keeps no reference to body. ok is false for a malformed body.
func decodeAnswer(op, code int32, body []byte) (a Answer, ok bool) {
	a.Refused = -1
	if a.Err = errorOf(code); a.Err != nil {
		return a, true
	}
	d := proto.NewDecoder(body)
	switch op {
	case proto.OpCreate, proto.OpSync:
		a.Path = d.String()
	case proto.OpCreate2, proto.OpCreateContainer:
		a.Path, a.Stat = d.String(), d.Stat()
	case proto.OpGetData:
		a.Data, a.Stat = d.Buffer(), d.Stat()
	case proto.OpExists, proto.OpSetData:
		a.Stat = d.Stat()
	case proto.OpGetChildren2:
		a.Children = decodeTexts(d, string(body))
		a.Stat = d.Stat()
		return a, a.Children != nil && d.Err() == nil
	case proto.OpMulti:
		ok = decodeParts(d, &a) // before a is returned, because Go does not define the order within one statement
		return a, ok
	}
	return a, d.Err() == nil
}

// decodeTexts reads a list of texts, which share one copy of the frame. decodeTexts returns nil for a malformed
// list.
func decodeTexts(d *proto.Decoder, frame string) []string {
	n := int(d.Int32())
	if n < 0 || n > d.Len()/4 {
		return nil
	}
	texts := make([]string, n)
	for i := range texts {
		size := int(d.Int32())
		at := len(frame) - d.Len()
		if d.Skip(size) {
			texts[i] = frame[at : at+size]
		}
	}
	return texts
}

// takeAnswer reads the answer to one of the engine's own requests, and passes the answer to the receiver. The caller
// peeked at the header of the frame.
func (l *Line) takeAnswer(request sentFrame, zxid int64, code int32) error {
	if l.frameLeft-4 > MaxFrame {
		failAll([]sentFrame{request}, zk.ErrConnectionClosed)
		return l.failMalformed()
	}
	body, err := l.readBody()
	if err != nil {
		failAll([]sentFrame{request}, zk.ErrConnectionClosed)
		return err
	}
	l.wire.noteZxid(zxid)
	if request.to == nil {
		return nil // given up
	}
	a, ok := decodeAnswer(request.Op, code, body)
	if !ok {
		a.Err = errMalformed
	}
	a.SentAt, a.Zxid, a.IsUncommitted = request.SentAt, zxid, request.IsUncommitted(zxid)
	request.to.Receive(a)
	if a.Err == nil && request.IsProof() && !l.hasCommitted {
		l.hasCommitted = true
		l.attempt.NoteCommit()
	}
	switch {
	case !ok:
		return l.failMalformed()
	case code == proto.CodeSessionExpired: // the next handshake finds out whether the session really expired
		l.failWith(errExpired)
		return errExpired
	}
	return nil
}

// readBody reads the current frame without the header. The result is valid until the next frame.
func (l *Line) readBody() ([]byte, error) {
	if l.frameLeft <= l.in.Buffered() { // the usual case, without a copy
		frame, err := l.in.Peek(l.frameLeft)
		_, _ = l.in.Discard(l.frameLeft)
		l.frameLeft = 0
		return frame[proto.HeaderSize:], err
	}
	frame := slices.Grow(l.body[:0], l.frameLeft)[:l.frameLeft]
	for n := 0; n < len(frame); {
		read, err := l.in.Read(frame[n:])
		if n, l.frameLeft = n+read, l.frameLeft-read; err != nil {
			return nil, err
		}
		l.extendReadDeadline()
	}
	if l.body = nil; len(frame) <= maxSpare {
		l.body = frame
	}
	return frame[proto.HeaderSize:], nil
}

// noteZxid keeps the latest zxid of the session.
func (w *Wire) noteZxid(zxid int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastZxid = max(w.lastZxid, zxid)
}

// withLastZxid returns the request of a handshake with the latest zxid in any answer of the session, because the
// server must not be behind that zxid. zk.Conn knows only the answers to its own requests.
func withLastZxid(frame []byte, lastZxid int64) []byte {
	const at, end, sessionAt = 8, 16, 20 // behind the length and the version; then the timeout and the session
	if len(frame) < sessionAt+8 || binary.BigEndian.Uint64(frame[sessionAt:]) == 0 {
		return frame
	}
	if known := int64(binary.BigEndian.Uint64(frame[at:])); known >= lastZxid { //nolint:gosec // a zxid
		return frame
	}
	frame = slices.Clone(frame)
	binary.BigEndian.PutUint64(frame[at:end], uint64(lastZxid)) //nolint:gosec // as above
	return frame
}
