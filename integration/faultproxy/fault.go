package faultproxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// DropRequest loses the next n matching requests. The server never sees them, and their connection is cut. A negative n
// means all of them until Remove, here and in DropReply.
func (p *Proxy) DropRequest(match Match, n int) *Rule {
	return p.rules.add(&Rule{match: match, n: n, onRequest: func(Request, <-chan struct{}) verdict { return drop }})
}

// DropReply loses the answers to the next n matching requests. The server executes each request, and its connection is
// cut in place of the answer. A request whose connection ends for another reason before the answer does not count.
func (p *Proxy) DropReply(match Match, n int) *Rule {
	return p.rules.add(&Rule{match: match, n: n, onReply: func(Request, Reply, <-chan struct{}) verdict { return drop }})
}

// OnRequest calls fn with every request, handshakes and pings included, before it is forwarded. Several hooks run in the
// order in which they were made.
func (p *Proxy) OnRequest(fn func(Request)) *Rule {
	return p.hooks.add(&Rule{
		match: func(Request) bool { return true }, n: unlimited,
		onRequest: func(r Request, _ <-chan struct{}) verdict {
			fn(r)
			return forward
		},
	})
}

// BeforeReply calls fn between the arrival of the answer to a matching request and its forwarding.
func (p *Proxy) BeforeReply(match Match, fn func(Request, Reply)) *Rule {
	return p.rules.add(&Rule{
		match: match, n: unlimited,
		onReply: func(r Request, reply Reply, _ <-chan struct{}) verdict {
			fn(r, reply)
			return forward
		},
	})
}

// HoldRequest holds the next matching request, and all that the client sends after it on that connection, until release
// is called or the connection ends. arrived is closed when the request is held.
func (p *Proxy) HoldRequest(match Match) (arrived <-chan struct{}, release func()) {
	here, freed, free := latch()
	p.rules.add(&Rule{match: match, n: 1, onRequest: func(_ Request, done <-chan struct{}) verdict {
		close(here)
		await(freed, done)
		return forward
	}})
	return here, free
}

// HoldReply holds the answer to the next matching request, and all that the server sends after it on that connection,
// until release is called or the connection ends. arrived is closed when the answer is held, which is after the server
// executed the request.
func (p *Proxy) HoldReply(match Match) (arrived <-chan struct{}, release func()) {
	here, freed, free := latch()
	p.rules.add(&Rule{match: match, n: 1, onReply: func(_ Request, _ Reply, done <-chan struct{}) verdict {
		close(here)
		await(freed, done)
		return forward
	}})
	return here, free
}

// DelayReply delays the answer to every matching request, and all that the server sends after it on that connection.
// Op("connect") makes handshakes slow.
func (p *Proxy) DelayReply(match Match, d time.Duration) *Rule {
	return p.rules.add(&Rule{
		match: match, n: unlimited,
		onReply: func(_ Request, _ Reply, done <-chan struct{}) verdict {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-done:
			}
			return forward
		},
	})
}

// ExpireSessions ends the sessions of the live connections at the server, past the proxy and its holds.
func (p *Proxy) ExpireSessions(ctx context.Context) error {
	var errs []error
	for _, l := range p.live() {
		if id := l.sessionID(); id != 0 {
			errs = append(errs, zkadmin.Expire(ctx, p.upstream, id))
		}
	}
	return errors.Join(errs...)
}

// latch returns a channel to close on arrival, a channel closed by free, and free, which may be called more than once.
func latch() (here, freed chan struct{}, free func()) {
	here, freed = make(chan struct{}), make(chan struct{})
	return here, freed, sync.OnceFunc(func() { close(freed) })
}

func await(freed, done <-chan struct{}) {
	select {
	case <-freed:
	case <-done:
	}
}
