package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Each process has one more client, which the nemesis shuts down while functions of Do and of leaders run. The process then
// connects anew. A hold of such a function lasts until the function returns.

const (
	firstServant = 70                 // the number of the first contender of that client
	windDown     = SessionTimeout / 4 // how long a function continues at most after the start of the shutdown
	shutdownIn   = 5 * SessionTimeout
)

// byShutdown ends an attempt without a lease, and a context under a function that winds down.
const byShutdown = "a shutdown"

// servant is that client.
type servant struct {
	*worker
	client *recipes.Client
	atWork atomic.Int64  // functions
	done   chan struct{} // closed when the contenders are done
	down   chan struct{} // closed when the client is shut down
}

// serve runs the client, and its successors, until the contenders are done. The session of the last one stays open until
// closeLast is called.
func (w *worker) serve(ctx context.Context) (closeLast func() error, err error) {
	first, second, leader := w.contender(firstServant, doPath), w.contender(firstServant+1, doPath), w.contender(firstServant+2, termPath)
	for {
		client, err := w.connect(ctx)
		if err != nil {
			return func() error { return nil }, err
		}
		s := &servant{worker: w, client: client, done: make(chan struct{}), down: make(chan struct{})}
		var running sync.WaitGroup
		var errs [3]error
		running.Go(func() { errs[0] = s.inDo(ctx, first) })
		running.Go(func() { errs[1] = s.inDo(ctx, second) })
		running.Go(func() { errs[2] = s.inTerms(ctx, leader) })
		go func() { // ends with the contenders; joined below
			defer close(s.done)
			running.Wait()
		}()
		isShutDown := s.awaitShutdown(ctx)
		close(s.down)
		<-s.done
		if !isShutDown {
			return client.Close, errors.Join(errs[:]...)
		}
		if err := client.Close(); err != nil { // which joins what Shutdown did not wait for
			return func() error { return nil }, fmt.Errorf("close after a shutdown: %w", err)
		}
	}
}

// awaitShutdown shuts the client down when the nemesis asks for it and a function is at work. It returns false if the contenders are
// done before.
func (s *servant) awaitShutdown(ctx context.Context) bool {
	select {
	case <-s.shutdown:
	case <-s.done:
		return false
	}
	for s.atWork.Load() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-s.done:
			return false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownIn)
	defer cancel()
	atWork := s.atWork.Load()
	err := s.client.Shutdown(ctx)
	s.record(Event{What: ShutDown, By: s.name(), Value: atWork, Text: fmt.Sprint(err)})
	if left := s.atWork.Load(); left > 0 && !errors.Is(err, recipes.ErrStepDownGrace) {
		s.record(Event{What: Deserted, By: s.name(), Value: left, Text: fmt.Sprint(err)})
	}
	return true
}

// inDo works in Do until the process is to finish, or the client is shut down.
func (s *servant) inDo(ctx context.Context, c *contender) error {
	m, err := mutex.New(s.client, c.path, mutex.WithID(c.name))
	for last := false; !last && err == nil && ctx.Err() == nil; linger(c.upTo(30*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		c.call(byShutdown, 0)
		isCalled := false
		failed := m.Do(ctx, func(held context.Context, lease *recipes.Lease) error {
			isCalled = true
			s.work(ctx, held, c, lease)
			return nil
		})
		if !isCalled {
			c.note(Event{What: Failed, Try: c.tries, Text: failed.Error()})
		}
		if errors.Is(failed, recipes.ErrClosed) {
			return nil
		}
	}
	return err
}

// inTerms works as a leader until the process is to finish, or the client is shut down.
func (s *servant) inTerms(ctx context.Context, c *contender) error {
	led := make(chan struct{})
	end := sync.OnceFunc(func() { close(led) })
	l, err := selector.New(s.client, c.path, func(held context.Context, term *recipes.Lease) error {
		last := c.finishing()
		c.tries++
		s.work(ctx, held, c, term)
		if last && held.Err() == nil {
			end()
		}
		return nil
	}, selector.WithID(c.name), selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond}))
	if err == nil {
		err = l.Start()
	}
	if err != nil {
		return err
	}
	select {
	case <-led:
	case <-s.down:
	case <-ctx.Done():
	}
	return l.Close()
}

// work changes the row as long as it holds the lock. After a shutdown it continues for a while, because the lock is held until
// it returns.
func (s *servant) work(ctx, held context.Context, c *contender, lease *recipes.Lease) {
	s.atWork.Add(1)
	defer s.atWork.Add(-1)
	try, token := c.tries, lease.FencingToken()
	c.note(Event{What: Granted, Try: try, Token: token, Znode: lease.Path()})
	ended := sync.OnceFunc(func() {
		text := "the function returned"
		switch cause := context.Cause(held); {
		case errors.Is(cause, recipes.ErrClosed):
			text = byShutdown
		case cause != nil:
			text = cause.Error()
		}
		c.note(Event{What: Ended, Try: try, Token: token, Text: text})
	})
	told := make(chan struct{})
	stop := context.AfterFunc(held, func() {
		defer close(told)
		if errors.Is(context.Cause(held), recipes.ErrClosed) {
			c.note(Event{What: Releasing, Try: try, Token: token})
		} else {
			ended()
		}
	})
	c.guard(ctx, lease)
	c.work(lease, 150*time.Millisecond)
	if errors.Is(context.Cause(held), recipes.ErrClosed) {
		linger(c.upTo(windDown), ctx.Done())
	}
	c.guard(ctx, lease)
	if !stop() {
		<-told
	}
	ended()
}

// failLogins makes a client log in again, and loses the requests or the answers of some of its logins, or of all for a while,
// together with their connections. The servers answered the handshakes before. It excuses no violation.
func failLogins(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) (hit bool) {
	fail, times := (*faultproxy.Proxy).DropRequest, 1+r.IntN(20)
	if r.IntN(2) == 0 {
		fail = (*faultproxy.Proxy).DropReply
	}
	if r.IntN(3) == 0 {
		times = -1 // all
	}
	span, isLogin := n.timeout/4+n.span(r)/2, func(r faultproxy.Request) bool { return r.Op == "sasl" || r.Op == "setAuth" }
	var rules []*faultproxy.Rule
	for _, line := range c.lines {
		rules = append(rules, fail(line, isLogin, times))
	}
	c.cut()
	pause(ctx, span)
	for _, rule := range rules {
		rule.Remove()
		hit = hit || rule.Hits() > 0
	}
	return hit
}
