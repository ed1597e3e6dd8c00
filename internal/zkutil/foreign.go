package zkutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// foreign calls the user's dialer and host provider. Either may wait for longer than it
// should, and nothing can stop it: then the session goes on without it, and Close tells.
type foreign struct {
	ctx   context.Context // ends with the session
	calls callbacks       // joined in Close, for a while

	mu      sync.Mutex     // protects what is below
	running map[string]int // calls by what they are for
}

// maxForeign bounds the calls for one address that were given up and still run.
const maxForeign = 4

// dialGrace is how much longer than its timeout a dialer may take, which has its own error
// then.
const dialGrace = 50 * time.Millisecond

// begin counts a call; ended does so when it has returned.
func (f *foreign) begin(what string) (ended func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[what] >= maxForeign {
		return nil, fmt.Errorf("%d calls that were given up have not returned", maxForeign)
	}
	f.running[what]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.running[what]--; f.running[what] == 0 {
			delete(f.running, what)
		}
	}, nil
}

// callForeign waits for fn, which runs in a goroutine of its own, for as long as ctx lasts.
// A result that comes later goes to late.
func callForeign[T any](ctx context.Context, f *foreign, what string, fn func() T, late func(T)) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	ended, err := f.begin(what)
	if err != nil {
		return result, err
	}
	answer := make(chan T)
	if !f.calls.run(func() { // ends with the user's function; joined in Close, for a while
		defer ended()
		result := fn()
		select {
		case answer <- result:
		case <-ctx.Done():
			late(result)
		}
	}) {
		ended()
		return result, ErrClosed
	}
	select {
	case result = <-answer:
		return result, nil
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// dialFunc is a dialer that sets its timeout itself.
type dialFunc func(network, address string, timeout time.Duration) (net.Conn, error)

// dialer returns dial with its timeout enforced. A connection that comes too late is closed.
func (f *foreign) dialer(dial dialFunc) dialFunc {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(f.ctx, timeout+dialGrace)
		defer cancel()
		dialled, err := callForeign(ctx, f, address, func() outcome[net.Conn] {
			conn, err := dial(network, address, timeout)
			return outcome[net.Conn]{conn, err}
		}, func(late outcome[net.Conn]) {
			if late.err == nil {
				_ = late.result.Close()
			}
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("dial %s: the dialer has not returned within %v: %w", address, timeout, os.ErrDeadlineExceeded)
		case err != nil:
			return nil, fmt.Errorf("dial %s: %w", address, err)
		default:
			return dialled.result, dialled.err
		}
	}
}

const hostProvider = "host provider"

// foreignHosts is the user's host provider, which is waited for until the session ends.
type foreignHosts struct {
	*foreign

	inner zk.HostProvider
}

// hostsOf returns the user's host provider as it is to be called, nil if there is none.
func (f *foreign) hostsOf(provider zk.HostProvider) zk.HostProvider {
	if provider == nil {
		return nil
	}
	return foreignHosts{f, provider}
}

// Init is called once, from zk.Connect.
func (h foreignHosts) Init(servers []string) error { return h.inner.Init(servers) }

// Len is 1 where the user's does not say.
func (h foreignHosts) Len() int {
	n, err := callForeign(h.ctx, h.foreign, hostProvider, h.inner.Len, func(int) {})
	if err != nil {
		return 1
	}
	return n
}

// Next returns no server, and asks for a pause, where the user's does not.
func (h foreignHosts) Next() (server string, retryStart bool) {
	type choice struct {
		server     string
		retryStart bool
	}
	next, err := callForeign(h.ctx, h.foreign, hostProvider, func() choice {
		server, retryStart := h.inner.Next()
		return choice{server, retryStart}
	}, func(choice) {})
	if err != nil {
		return "", true
	}
	return next.server, next.retryStart
}

// Connected tells the user's.
func (h foreignHosts) Connected() {
	_, _ = callForeign(h.ctx, h.foreign, hostProvider, func() struct{} {
		h.inner.Connected()
		return struct{}{}
	}, func(struct{}) {})
}
