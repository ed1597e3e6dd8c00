package zkadmin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// ErrNoSession is returned by Expire when the server has no such session.
var ErrNoSession = errors.New("no such session")

// maxFrame is far above any answer to a handshake or a close.
const maxFrame = 1 << 16

// Expire ends the session, as the server would after its timeout. Its ephemeral nodes are deleted when Expire returns, and its
// client learns of the end at its next handshake. Expire joins the session with the password that follows from the id and
// closes it, so it needs only the id (zk.Conn.SessionID).
//
// A client that reconnects at the very moment of that join may be admitted. In that case the server ends the session, but not
// this connection, and silently drops its requests. Its client abandons the connection after a silence of 2T/3. A test that
// can't wait for that keeps the client disconnected meanwhile.
func Expire(ctx context.Context, server string, sessionID int64) error {
	for cutOff := false; ; {
		err := closeAs(ctx, server, sessionID, sessionPassword(sessionID))
		switch {
		case err == nil, cutOff && errors.Is(err, ErrNoSession):
			return nil
		case cutOff && errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
			// The earlier close was executed after all, because the server drops requests of a closed session.
		case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && ctx.Err() == nil:
			cutOff = true // the session's client joined it again meanwhile, or the server has no quorum
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("zkadmin: expire session: %w", err)
		}
	}
}

// Handshake opens a new session and closes it again. These are two writes that the ensemble's quorum committed when
// Handshake returns nil. A server that requires a login refuses the close; the session then expires.
func Handshake(ctx context.Context, server string) error {
	if err := closeAs(ctx, server, 0, make([]byte, proto.PasswordLength)); err != nil && !errors.Is(err, errLoginRequired) {
		return fmt.Errorf("zkadmin: handshake: %w", err)
	}
	return nil
}

var errLoginRequired = errors.New("the server demands a login")

func closeAs(ctx context.Context, server string, id int64, password []byte) error {
	conn, err := dial(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close()
	closing := proto.NewEncoder().Int32(1).Int32(proto.OpCloseSession).Frame()
	// Both at once, because joining the session disconnects its client, which may reconnect and take the session over
	// before a later close arrives.
	if _, err := conn.Write(append(connectRequest(id, password), closing...)); err != nil {
		return err
	}
	answer, err := readFrame(conn)
	if err != nil {
		return err
	}
	answer.Int32() // protocol version
	answer.Int32() // timeout
	session := answer.Int64()
	if answer.Err() != nil {
		return io.ErrUnexpectedEOF
	}
	if session == 0 {
		return ErrNoSession
	}
	answer, err = readFrame(conn)
	if err != nil {
		return err
	}
	answer.Int32() // xid
	answer.Int64() // zxid
	code := answer.Int32()
	if answer.Err() != nil {
		return io.ErrUnexpectedEOF
	}
	switch code {
	case proto.CodeOK:
		return nil
	case proto.CodeLoginRequired:
		return errLoginRequired
	default:
		return fmt.Errorf("server error %d", code)
	}
}

func connectRequest(id int64, password []byte) []byte {
	const timeout = 10 * time.Second
	return proto.NewEncoder().
		Int32(0). // protocol version
		Int64(0). // last zxid seen
		Int32(int32(timeout.Milliseconds())).
		Int64(id).Buffer(password).
		Bool(false). // read-only servers are not wanted
		Frame()
}

func readFrame(conn net.Conn) (*proto.Decoder, error) {
	var header [4]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, err
	}
	return proto.NewDecoder(frame), nil
}
