package zkadmin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// ErrNoSession is returned by Expire when the server has no such session.
var ErrNoSession = errors.New("no such session")

const (
	opCloseSession = -11
	passwordLength = 16
	// maxFrame is far above any answer to a handshake or a close.
	maxFrame = 1 << 16
)

// Expire ends the session, as the server would after its timeout: its ephemeral nodes are gone when Expire returns, and
// its client is told at its next handshake. It joins the session with the password that follows from the id and closes
// it, so it needs nothing but the id (zk.Conn.SessionID).
func Expire(ctx context.Context, server string, sessionID int64) error {
	for cutOff := false; ; {
		err := closeAs(ctx, server, sessionID, sessionPassword(sessionID))
		switch {
		case err == nil, cutOff && errors.Is(err, ErrNoSession):
			return nil
		case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && ctx.Err() == nil:
			cutOff = true // the session's client has joined it again in the meantime
		default:
			return fmt.Errorf("zkadmin: expire session: %w", err)
		}
	}
}

// Handshake opens a new session and closes it again: two writes that the ensemble's quorum has committed when Handshake
// returns nil.
func Handshake(ctx context.Context, server string) error {
	if err := closeAs(ctx, server, 0, make([]byte, passwordLength)); err != nil {
		return fmt.Errorf("zkadmin: handshake: %w", err)
	}
	return nil
}

func closeAs(ctx context.Context, server string, id int64, password []byte) error {
	conn, err := dial(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close()
	const xid = 1
	closing := binary.BigEndian.AppendUint32(nil, 8)
	closing = binary.BigEndian.AppendUint32(closing, xid)
	code := int32(opCloseSession)
	closing = binary.BigEndian.AppendUint32(closing, uint32(code))
	// Both at once: joining the session cuts its client off, who may come back and take it over again before a close sent
	// later has arrived.
	if _, err := conn.Write(append(connectRequest(id, password), closing...)); err != nil {
		return err
	}
	answer, err := readFrame(conn)
	if err != nil {
		return err
	}
	// protocol version (4), timeout (4), session id (8), password
	if len(answer) < 16 {
		return io.ErrUnexpectedEOF
	}
	if binary.BigEndian.Uint64(answer[8:]) == 0 {
		return ErrNoSession
	}
	answer, err = readFrame(conn)
	if err != nil {
		return err
	}
	// xid (4), zxid (8), error (4)
	if len(answer) < 16 {
		return io.ErrUnexpectedEOF
	}
	if code := int32(binary.BigEndian.Uint32(answer[12:])); code != 0 {
		return fmt.Errorf("server error %d", code)
	}
	return nil
}

func connectRequest(id int64, password []byte) []byte {
	const timeout = 10 * time.Second
	var b []byte
	b = binary.BigEndian.AppendUint32(b, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	b = append(b, password...)
	b = append(b, 0) // read-only servers are not wanted
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func readFrame(conn net.Conn) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(conn, frame)
	return frame, err
}
