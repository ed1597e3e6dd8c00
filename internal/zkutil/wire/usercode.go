package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// userCode calls the user's dialer and host provider, each in a goroutine of its own. Either may
// block for longer than it should, and nothing can stop it. Then the session goes on without the
// call, and Close reports it.
type userCode struct {
	ctx   context.Context // ends with the session
	calls zkutil.Group    // joined in the owner's Close, for a limited time

	mu      sync.Mutex     // protects what is below
	running map[string]int // calls by their purpose
}

// maxRunning bounds the calls for one purpose, of which all but one have been given up.
const maxRunning = 4

// dialGrace is how much longer than its timeout a dialer may take. It lets the dialer's own error
// come first.
const dialGrace = 50 * time.Millisecond

// beginCall counts a call. The caller calls ended when the user's function has returned.
func (u *userCode) beginCall(purpose string) (ended func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running[purpose] >= maxRunning {
		return nil, fmt.Errorf("%d calls that were given up have not returned", maxRunning)
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

// callUser runs fn in a goroutine of its own, and blocks until fn returns or ctx ends. A result that
// comes after ctx has ended goes to onLate.
func callUser[T any](ctx context.Context, u *userCode, purpose string, fn func() T, onLate func(T)) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	ended, err := u.beginCall(purpose)
	if err != nil {
		return result, err
	}
	results := make(chan T)
	if !u.calls.Run(func() { // ends with fn; joined in the owner's Close, for a limited time
		defer ended()
		result := fn()
		select {
		case results <- result:
		case <-ctx.Done():
			onLate(result)
		}
	}) {
		ended()
		return result, zkutil.ErrClosed
	}
	select {
	case result = <-results:
		return result, nil
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// dialFunc is a dialer that gets its timeout with each call.
type dialFunc func(network, address string, timeout time.Duration) (net.Conn, error)

// limitDialer returns dial with its timeout enforced. A connection that comes too late is closed.
func (u *userCode) limitDialer(dial dialFunc) dialFunc {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(u.ctx, timeout+dialGrace)
		defer cancel()
		type outcome struct {
			conn net.Conn
			err  error
		}
		dialled, err := callUser(ctx, u, address, func() outcome {
			conn, err := dial(network, address, timeout)
			return outcome{conn, err}
		}, func(late outcome) {
			if late.err == nil {
				_ = late.conn.Close()
			}
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("dial %s: the dialer has not returned within %v: %w", address, timeout, os.ErrDeadlineExceeded)
		case err != nil:
			return nil, fmt.Errorf("dial %s: %w", address, err)
		default:
			return dialled.conn, dialled.err
		}
	}
}

const hostProvider = "host provider"

// userHosts is the user's host provider. The wire waits for it until the session ends, because
// without a server there is nothing to dial.
type userHosts struct {
	*userCode

	inner zk.HostProvider
}

// wrapHosts returns the user's host provider with its calls in goroutines of their own, nil if there
// is none.
func (u *userCode) wrapHosts(provider zk.HostProvider) zk.HostProvider {
	if provider == nil {
		return nil
	}
	return userHosts{u, provider}
}

// Init is called once, from zk.Connect.
func (h userHosts) Init(servers []string) error { return h.inner.Init(servers) }

// Len is 1 if the user's host provider does not answer.
func (h userHosts) Len() int {
	n, err := callUser(h.ctx, h.userCode, hostProvider, h.inner.Len, func(int) {})
	if err != nil {
		return 1
	}
	return n
}

// Next returns no server, and asks for a pause, if the user's host provider does not answer.
func (h userHosts) Next() (server string, retryStart bool) {
	type choice struct {
		server     string
		retryStart bool
	}
	next, err := callUser(h.ctx, h.userCode, hostProvider, func() choice {
		server, retryStart := h.inner.Next()
		return choice{server, retryStart}
	}, func(choice) {})
	if err != nil {
		return "", true
	}
	return next.server, next.retryStart
}

// Connected tells the user's host provider.
func (h userHosts) Connected() {
	_, _ = callUser(h.ctx, h.userCode, hostProvider, func() struct{} {
		h.inner.Connected()
		return struct{}{}
	}, func(struct{}) {})
}
