package callbacks

import (
	"math"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// MaxQueued is how many calls may wait behind a hung function of the user, to bound memory.
const MaxQueued = 1024

// Runner runs the functions of several orders inside one scope.
type Runner struct {
	scope   zkutil.Scope
	onPanic func(value any, stack []byte)
	running zkutil.Group
}

// NewRunner returns a Runner. onPanic is called after a panic in a function, in the goroutine of the function.
func NewRunner(scope zkutil.Scope, onPanic func(value any, stack []byte)) *Runner {
	return &Runner{scope: scope, onPanic: onPanic}
}

// Finish refuses new functions. The channel is closed after all functions returned.
func (r *Runner) Finish() <-chan struct{} { return r.running.Finish() }

// NewOrder returns a new order. Its functions also run inside scope, unless scope is 0.
func (r *Runner) NewOrder(scope zkutil.Scope) *Order {
	return &Order{runner: r, scope: scope, onPanic: r.onPanic}
}

// NewSilentOrder returns a new order for calls of a logger, in which a panic can't be logged.
func (r *Runner) NewSilentOrder() *Order { return &Order{runner: r, onPanic: func(any, []byte) {}} }

// Call runs one function in a separate goroutine, also inside scope, and waits until the function returns.
func (r *Runner) Call(scope zkutil.Scope, fn func()) {
	order, done := r.NewOrder(scope), make(chan struct{})
	go func() { // ends with the user's function; joined below
		defer close(done)
		order.RunHere(fn)
	}()
	<-done
}

// Order runs functions of the user one at a time, in the order of posting.
type Order struct {
	runner  *Runner
	scope   zkutil.Scope // of the candidate that owns the functions; 0: none
	onPanic func(value any, stack []byte)

	mu        sync.Mutex // protects the fields below
	queue     []func()
	isRunning bool
}

// Post appends fn, and never blocks. Once the Runner is finished Post does nothing. Use Post for calls whose
// number is bounded, because each follows only on the return of the previous calls; use TryPost for all others.
func (o *Order) Post(fn func()) { o.post(fn, math.MaxInt) }

// TryPost is Post, unless MaxQueued calls already wait: then TryPost does nothing and reports that the call is
// left out.
func (o *Order) TryPost(fn func()) (isLeftOut bool) {
	isQueued, isFinished := o.Offer(fn)
	return !isQueued && !isFinished
}

// Offer appends fn, unless MaxQueued calls already wait or the Runner is finished.
func (o *Order) Offer(fn func()) (isQueued, isFinished bool) { return o.post(fn, MaxQueued) }

// post appends fn, unless limit calls wait already or the Runner is finished.
func (o *Order) post(fn func(), limit int) (isQueued, isFinished bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= limit {
		return false, false
	}
	if !o.isRunning {
		if o.isRunning = o.runner.running.Run(o.runQueued); !o.isRunning {
			return false, true
		}
	}
	o.queue = append(o.queue, fn)
	return true, false
}

// runQueued runs functions until the queue is empty.
func (o *Order) runQueued() {
	isEmpty := false
	defer func() {
		if !isEmpty { // runtime.Goexit, as in a failing test: another goroutine continues
			o.mu.Lock()
			o.isRunning = o.runner.running.Run(o.runQueued)
			o.mu.Unlock()
		}
	}()
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.isRunning, isEmpty = false, true
			o.mu.Unlock()
			return
		}
		fn := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		o.RunHere(fn)
	}
}

// RunHere runs a function in the goroutine of the caller, out of order, and contains its panic.
func (o *Order) RunHere(fn func()) {
	defer func() {
		if v := recover(); v != nil {
			o.onPanic(v, zkutil.StackForLogs())
		}
	}()
	zkutil.RunUserCode(fn, o.runner.scope, o.scope)
}

// Barrier returns a channel that is closed once all calls posted before have run: at once if none is left to
// run.
func (o *Order) Barrier() <-chan struct{} {
	done := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isRunning { // and looks at the queue again, under the lock
		o.queue = append(o.queue, func() { close(done) })
	} else {
		close(done)
	}
	return done
}
