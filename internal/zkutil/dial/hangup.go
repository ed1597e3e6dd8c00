package dial

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// IsHangUp reports whether a server closed the connection without an answer.
func IsHangUp(err error) bool { return zkutil.IsAny(err, io.EOF, syscall.ECONNRESET, syscall.EPIPE) }

// hangUpError is the failure of an attempt at a server that has hung up without an answer.
type hangUpError struct {
	error

	cause Cause
}

func (h *hangUpError) Error() string {
	return fmt.Sprintf("%v (hung up without an answer: %v)", h.error, h.cause)
}
func (h *hangUpError) Unwrap() error { return h.error }

// explainHangUp adds the cause, or the possible causes, to err if the server has hung up without an answer.
func explainHangUp(err error, cause Cause) error {
	if !IsHangUp(err) {
		return err
	}
	return &hangUpError{err, cause}
}

// ExplainHangUp adds the possible causes to err if a server has hung up without an answer.
func ExplainHangUp(err error) error { return explainHangUp(err, UnknownCause) }

// ExplainHangUp adds the possible causes to a hang-up, err, in place of an answer to the handshake. If this client was never connected, it
// asks the server for the cause, once.
func (a *Attempt) ExplainHangUp(err error) error {
	d := a.dialer
	if d.hasTLS { // TLS succeeded
		return ExplainHangUp(err)
	}
	return explainHangUp(err, d.findCause(d.userCode.ctx, a.to, func(context.Context) (net.Conn, error) {
		return d.openWithin(min(a.Patience, probeTime), "tcp", a.to)
	}))
}

// maxCauses bounds the servers that are asked for a cause.
const maxCauses = 16

// findCause returns the cause for which a server hangs up. It asks a server at the first hang-up, and only until one answers a
// handshake, because a server that served this client hangs up for another reason.
func (d *Dialer) findCause(ctx context.Context, to host, open func(context.Context) (net.Conn, error)) Cause {
	server := to.String()
	d.mu.Lock()
	cause, isKnown := d.causes[server]
	mayAsk := !isKnown && !d.hasAnswer && len(d.causes) < maxCauses
	if mayAsk {
		d.causes[server] = UnknownCause // another goroutine does not ask, too
	}
	d.mu.Unlock()
	if !mayAsk {
		return cause
	}
	cause = FindCause(ctx, open, d.hasTLS)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.causes[server] = cause
	return cause
}

// noteAnswer forgets the causes of hang-ups before the first answer of a server.
func (d *Dialer) noteAnswer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hasAnswer = true
	clear(d.causes)
}
