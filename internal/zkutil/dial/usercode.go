package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// userCode calls the user's dialer (with the functions of the user's tls.Config), each call in a separate goroutine. Such
// a call may block for too long, and nothing can stop a blocked call. The session then continues without the call, and
// Close reports the call. A panic becomes an error of the call and is reported to the owner.
type userCode struct {
	ctx     context.Context // ends with the session
	calls   zkutil.Group    // joined in the owner's Close, for a limited time
	onPanic func(value any, stack []byte)

	mu      sync.Mutex     // protects the fields below
	running map[string]int // calls by their purpose
}

// maxRunning bounds the running calls for a purpose. All but the latest are abandoned.
const maxRunning = 4

// dialGrace is how much longer than the timeout a dialer may take, so that the dialer's own error is first.
const dialGrace = 50 * time.Millisecond

// beginCall counts a call. The caller calls ended when the user's function returns.
func (u *userCode) beginCall(purpose string) (ended func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running[purpose] >= maxRunning {
		return nil, fmt.Errorf("%d abandoned calls are still running", maxRunning)
	}
	u.running[purpose]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.running[purpose]--; u.running[purpose] == 0 {
			delete(u.running, purpose)
		}
	}, nil
}

// callUser runs fn in a separate goroutine, and blocks until fn returns or ctx ends. onLate gets a result after the
// end of ctx.
func callUser[T any](ctx context.Context, u *userCode, purpose string, fn func() T, onLate func(T)) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	ended, err := u.beginCall(purpose)
	if err != nil {
		return result, err
	}
	type outcome struct {
		result T
		err    error
	}
	outcomes := make(chan outcome)
	if !u.calls.Run(func() { // ends with fn; joined in the owner's Close, for a limited time
		defer ended()
		result, err := containPanic(u, fn)
		select {
		case outcomes <- outcome{result, err}:
		case <-ctx.Done():
			if err == nil {
				onLate(result)
			}
		}
	}) {
		ended()
		return result, zkutil.ErrClosed
	}
	select {
	case done := <-outcomes:
		return done.result, done.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// errPanic is the error of a user's function that panicked.
var errPanic = errors.New("panic")

// containPanic calls fn. A panic of fn becomes an error.
func containPanic[T any](u *userCode, fn func() T) (result T, err error) {
	defer func() {
		if v := recover(); v != nil {
			u.onPanic(v, zkutil.StackForLogs())
			err = fmt.Errorf("%w: %v", errPanic, v)
		}
	}()
	return fn(), nil
}

// dialFunc opens a socket to a host within timeout.
type dialFunc func(network string, to host, timeout time.Duration) (net.Conn, error)

// limitDialer returns dial with the timeout enforced. A connection after the timeout is closed.
func (u *userCode) limitDialer(dial dialFunc) dialFunc {
	return func(network string, to host, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(u.ctx, timeout+dialGrace)
		defer cancel()
		type outcome struct {
			conn net.Conn
			err  error
		}
		dialled, err := callUser(ctx, u, to.String(), func() outcome {
			conn, err := dial(network, to, timeout)
			return outcome{conn, err}
		}, func(late outcome) {
			if late.err == nil {
				_ = late.conn.Close()
			}
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("dial %s: the dialer did not return within %v: %w", to, timeout, os.ErrDeadlineExceeded)
		case err != nil:
			return nil, fmt.Errorf("dial %s: %w", to, err)
		default:
			return dialled.conn, dialled.err
		}
	}
}
