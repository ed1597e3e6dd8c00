package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// zk.Conn presents its credentials again on each connection, one by one, before any other request. The engine's
// own requests wait for the credentials, because the server would otherwise refuse the requests. zk.Conn does
// not expose its credentials, so the wire keeps each accepted credential, as zk.Conn does.
//
// zk.Conn may present fewer: AddAuth puts a credential into zk.Conn's list a moment after the answer, when the
// next connection may already be up. Therefore the first frame that presents no credential, at the latest
// zk.Conn's ping, ends the wait as well.

// credential is the content of a request that presents a credential.
type credential string

// credentialOf returns the credential in a request, which follows the length, xid and operation.
func credentialOf(frame []byte) credential { return credential(frame[min(len(frame), 12):]) }

// noteSent records that zk.Conn wrote a frame, which may end the wait of the engine's own requests.
func (l *Line) noteSent(op int32, frame []byte) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.isPresented {
		return
	}
	if i := slices.Index(l.credentialsLeft, credentialOf(frame)); op == proto.OpAuth && i >= 0 {
		l.credentialsLeft = slices.Delete(l.credentialsLeft, i, i+1)
	} else {
		l.credentialsLeft = nil
	}
	l.releaseOwnLocked()
}

// releaseOwnLocked permits the engine's own requests, after zk.Conn presented its credentials again.
func (l *Line) releaseOwnLocked() {
	if len(l.credentialsLeft) == 0 {
		l.isPresented = true
		close(l.credentialsDone)
	}
}

// noteCredentialAnswer reports whether xid belongs to a credential. A credential presented for the first time is kept
// if the server accepts it.
func (l *Line) noteCredentialAnswer(xid, code int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	added, isCredential := l.credentials[xid]
	delete(l.credentials, xid)
	if added != "" && code == proto.CodeOK {
		l.wire.credentials = append(l.wire.credentials, added)
	}
	return isCredential
}

// A login over SASL runs on each connection, after the server's answer to the handshake and before zk.Conn sees that
// answer. So a login precedes every other request, those of zk.Conn included, which a server may refuse before a login
// (sessionRequireClientSASLAuth). The login belongs to the handshake: both share the handshake's patience, and a login
// that fails is a failed handshake, although the server already created the session.
//
// A server answers a login as follows (ZooKeeperServer.processSasl):
//
//	the server has no SASL login      no error, and a null token
//	the login continues or succeeds   no error, and a token; null after the last message of Kerberos
//	the login is refused              AuthFailed or SessionClosedRequireSaslAuth, and the connection ends;
//	                                  before 3.6 the connection ends without an answer; with
//	                                  allowSaslFailedClients no error, and a null token

// Mechanism begins a login at a server, given as configured.
type Mechanism func(ctx context.Context, server string) (Login, error)

// Login is a login on one connection.
type Login interface {
	// Respond returns the next message to the server. The first challenge is nil, and so is a null token. If isDone is true,
	// the login succeeds once the server accepts the response, or at once if the response is nil.
	Respond(ctx context.Context, challenge []byte) (response []byte, isDone bool, err error)
	// Explain returns the likely reason if the server refuses the latest response.
	Explain() string
}

// maxLoginSteps bounds the messages of a login, and maxLoginAnswer the length of an answer.
const maxLoginSteps, maxLoginAnswer = 16, 64 << 10

// loginError is the failure of a login. A hang-up is not unwrapped: unlike a hang-up after the request of a handshake, it does not
// say that the server refuses the session.
type loginError struct{ err error }

func (e *loginError) Error() string { return "SASL login: " + e.err.Error() }

func (e *loginError) Unwrap() error {
	if dial.IsHangUp(e.err) {
		return nil
	}
	return e.err
}

// logIn logs in. The answer to the handshake stays the next frame in the stream.
func (l *Line) logIn(answer []byte) error {
	_, _ = l.in.Discard(len(answer))
	if err := l.runLogin(); err != nil {
		return &loginError{err}
	}
	if l.in.Buffered() > 0 {
		return &loginError{errMalformed} // nothing was asked for
	}
	l.in.Reset(io.MultiReader(bytes.NewReader(answer), l.Conn))
	return nil
}

func (l *Line) runLogin() error {
	ctx, cancel := context.WithDeadline(context.Background(), l.deadline)
	defer cancel()
	var login Login
	var challenge []byte
	for range maxLoginSteps {
		var step loginStep
		err := l.wire.Dialer.Call(ctx, "SASL login", func(ctx context.Context) (err error) {
			if login == nil {
				if login, err = l.wire.mechanism(ctx, l.attempt.Name()); err != nil {
					return err
				}
			}
			step, err = nextStep(ctx, login, challenge)
			return err
		})
		if err != nil || step.isDone && step.response == nil {
			return err
		}
		if challenge, err = l.exchangeToken(step); err != nil || step.isDone {
			return err
		}
	}
	return fmt.Errorf("login not finished after %d messages", maxLoginSteps)
}

// loginStep is the next message of a login.
type loginStep struct {
	response []byte
	isDone   bool
	reason   string // the likely one of a refusal
}

func nextStep(ctx context.Context, login Login, challenge []byte) (step loginStep, err error) {
	step.response, step.isDone, err = login.Respond(ctx, challenge)
	step.reason = login.Explain()
	if err == nil && !step.isDone && step.response == nil {
		err = errors.New("the mechanism returned no response, but is not done")
	}
	return step, err
}

// exchangeToken sends a message, and returns the server's answer, nil for a null token.
func (l *Line) exchangeToken(step loginStep) (challenge []byte, err error) {
	request := proto.NewEncoder().Int32(firstXid).Int32(proto.OpSASL).Buffer(step.response)
	if _, err := l.Conn.Write(request.Frame()); err != nil {
		return nil, l.explainLoginFailure(err, step)
	}
	frame, err := l.readLoginAnswer()
	if err != nil {
		return nil, l.explainLoginFailure(err, step)
	}
	d := proto.NewDecoder(frame)
	xid, _, code := d.Int32(), d.Int64(), d.Int32()
	if code == proto.CodeOK {
		challenge = d.Buffer()
	}
	switch {
	case d.Err() != nil || xid != firstXid:
		return nil, errMalformed
	case code == proto.CodeAuthFailed || code == proto.CodeLoginRequired:
		return nil, fmt.Errorf("%w by the server: %s", zkutil.ErrLoginRefused, step.reason)
	case code != proto.CodeOK:
		return nil, errorOf(code)
	default:
		return challenge, nil
	}
}

// explainLoginFailure distinguishes silence from a hang-up, which is how servers before 3.6 refuse a login.
func (l *Line) explainLoginFailure(err error, step loginStep) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the server does not answer: %w", err)
	case dial.IsHangUp(err) && len(step.response) > 0:
		return fmt.Errorf("%w, or the server failed: %w: %s", zkutil.ErrLoginRefused, zkutil.ErrHungUp, step.reason)
	default:
		return err
	}
}

// readLoginAnswer reads a frame. The server's end of the connection within the frame is io.EOF.
func (l *Line) readLoginAnswer() ([]byte, error) {
	head, err := l.in.Peek(4)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxLoginAnswer {
		return nil, errMalformed
	}
	frame := make([]byte, 4+size)
	if _, err = io.ReadFull(l.in, frame); errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return frame[4:], err
}
