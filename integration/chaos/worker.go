package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Setup configures a client process.
type Setup struct {
	Proc    int
	Life    int // how many of this number were killed before
	Servers []string
	Timeout time.Duration // of the session
	DSN     string        // of the rows
	Seed    uint64
	Peer    Peer    // to contend with, if not with the whole library
	ByName  *ByName `json:",omitempty"` // nil: Servers are addresses
}

func (s Setup) name() string { return fmt.Sprintf("p%d.%d", s.Proc, s.Life) }

// The locks, and the rows of the same names.
const (
	fencedPath    = "/chaos/fenced"    // written behind, in SQL and in ZooKeeper
	mixedPath     = "/chaos/mixed"     // re-entrant, with time-outs and cancellations
	revokedPath   = "/chaos/revoked"   // asked back all the time
	latchPath     = "/chaos/latch"     // terms of a LeaderLatch
	selectorPath  = "/chaos/selector"  // terms of a LeaderSelector
	readWritePath = "/chaos/readwrite" // read and written, in SQL
	permitsPath   = "/chaos/permits"   // of a semaphore
	firstPath     = "/chaos/first"     // a mutex, the first part of a multilock
	secondPath    = "/chaos/second"    // a semaphore mutex, the second part
	cohortPath    = "/chaos/cohort"    // passed on inside each process, in SQL
	burstsPath    = "/chaos/bursts"    // by one process many times in a row, then by another
	standbyPath   = "/chaos/standby"   // by sessions of their own, that wait for long
	doPath        = "/chaos/do"        // in functions of Do, whose client is shut down now and then
	termPath      = "/chaos/term"      // terms of a LeaderSelector of that client
	basketPath1   = "/chaos/basket1"   // three mutexes that are acquired together, in SQL
	basketPath2   = "/chaos/basket2"
	basketPath3   = "/chaos/basket3"
	registerPath  = "/register" // the guarded znode
)

var paths = []string{
	fencedPath, mixedPath, revokedPath, latchPath, selectorPath, readWritePath, permitsPath, firstPath, secondPath, cohortPath,
	burstsPath, standbyPath, doPath, termPath, basketPath1, basketPath2, basketPath3,
}

// Paths are those of all locks.
func Paths() []string { return slices.Clone(paths) }

// worker is a client process.
type worker struct {
	Setup
	*recorder
	client *recipes.Client
	named  []recipes.Option // of all clients
	db     *sql.DB
	finish chan struct{}  // closed when each contender is to acquire once more and go
	leave  chan struct{}  // closed when the session is no longer needed
	ends   sync.WaitGroup // of the contexts of all leases

	shutdown chan struct{} // gets each wish to shut a client down
}

// Work is a client process. It contends until its input says "finish", then makes every contender acquire once more,
// and leaves on request. Until then its session stays open, so that leftovers of the contenders are visible. The end
// of its input ends it at once.
func Work(ctx context.Context, s Setup, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{Setup: s, recorder: newRecorder(s.Proc, out), finish: make(chan struct{}), leave: make(chan struct{}), shutdown: make(chan struct{}, 1)}
	go func() { // ends with the input, and is not waited for: it can't outlive the process
		defer cancel()
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			switch lines.Text() {
			case "shutdown":
				select {
				case w.shutdown <- struct{}{}:
				default: // one is waited for
				}
			case "finish":
				close(w.finish)
			case "leave":
				close(w.leave)
			}
		}
	}()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { w.watchClock(ctx) })
	before := goleak.IgnoreCurrent()
	var err error
	if w.named, err = s.useNames(); err != nil {
		return err
	}
	if w.db, err = openRows(s.DSN); err != nil {
		return err
	}
	if s.Peer != "" {
		err = w.contendPeer(ctx)
	} else {
		err = w.contendAll(ctx)
	}
	err = errors.Join(err, w.db.Close())
	left := ""
	if leak := goleak.Find(before); leak != nil {
		left = leak.Error()
	}
	if err == nil {
		w.record(Event{What: Left, By: w.name(), Text: left})
	}
	return err
}

// watchClock records when the process did not run, stopped or starved.
func (w *worker) watchClock(ctx context.Context) {
	const often, long = 10 * time.Millisecond, 100 * time.Millisecond
	for last := Now(); ; last = Now() {
		linger(often, ctx.Done())
		if ctx.Err() != nil {
			return
		}
		if time.Duration(Now()-last) > long {
			w.record(Event{What: Starved, By: w.name(), Value: last})
		}
	}
}

// rest waits, when all contenders are done, until the session is no longer needed.
func (w *worker) rest(ctx context.Context) {
	w.record(Event{What: Idle, By: w.name()})
	select {
	case <-w.leave:
	case <-ctx.Done():
	}
}

func (w *worker) contendAll(ctx context.Context) (err error) {
	if w.client, err = w.connect(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	bodies := []struct {
		path string
		run  func(*contender, context.Context) error
	}{
		{fencedPath, (*contender).fenced},
		{fencedPath, (*contender).fenced},
		{mixedPath, (*contender).mixed},
		{mixedPath, (*contender).mixed},
		{revokedPath, (*contender).revoked},
		{latchPath, (*contender).latch},
		{selectorPath, (*contender).selector},
		{readWritePath, (*contender).readWrite},
		{readWritePath, (*contender).readWrite},
		{permitsPath, (*contender).permits},
		{firstPath, (*contender).both},
		{basketPath1, (*contender).basket},
		{basketPath1, (*contender).basket},
		{cohortPath, (*contender).inCohort},
		{cohortPath, (*contender).inCohort},
		{cohortPath, (*contender).inCohort},
		{burstsPath, (*contender).inBursts},
		{ticksPath, (*contender).ticks},
	}
	errs := make([]error, len(bodies)+2)
	var closeStandbys, closeServant func() error
	all.Go(func() { closeStandbys, errs[len(bodies)] = w.standBy(ctx) })
	all.Go(func() { closeServant, errs[len(bodies)+1] = w.serve(ctx) })
	for i, body := range bodies {
		c := w.contender(i, body.path)
		all.Go(func() {
			if err := body.run(c, ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	all.Wait()
	w.rest(ctx)
	if ctx.Err() != nil { // Outcome.NotAll reports contenders without a last lease
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, context.Canceled) })
	}
	err = errors.Join(append(errs, closeStandbys(), closeServant(), w.client.Close())...)
	w.ends.Wait()
	return err
}

// options are those of all clients of the process. Each client logs in, over SASL or with a credential.
func (w *worker) options() []recipes.Option {
	switch {
	case w.Peer != "":
		return slices.Clone(w.named)
	case w.Proc%2 == 0:
		return append(slices.Clone(w.named), recipes.WithAuth("digest", []byte(loginUser+":"+loginPassword)))
	default:
		return append(slices.Clone(w.named), recipes.WithSASL(recipes.DigestMD5(loginUser, loginPassword)))
	}
}

// connect keeps trying, because a killed process may restart while no server is up.
func (w *worker) connect(ctx context.Context) (client *recipes.Client, err error) {
	for client == nil && ctx.Err() == nil {
		client, err = recipes.Connect(ctx, w.Servers, append(w.options(), recipes.WithSessionTimeout(w.Timeout), recipes.WithLogger(slog.New(listener{slog.DiscardHandler, w})),
			recipes.WithTrace(&recipes.Trace{AcquireEnd: tracePart}))...)
	}
	return client, err
}

func (w *worker) contender(i int, path string) *contender {
	return &contender{
		worker: w, name: fmt.Sprintf("%s.%d%s", w.name(), i, path), path: path,
		rand: rand.New(rand.NewPCG(w.Seed, uint64((w.Life*100+w.Proc)*100+i))),
		row:  row{w.db, path},
	}
}

// finishing reports whether no more than one more hold is wanted.
func (w *worker) finishing() bool {
	select {
	case <-w.finish:
		return true
	default:
		return false
	}
}

// contender competes for a lock. Its attempts are sequential.
type contender struct {
	*worker
	name  string
	path  string
	rand  *rand.Rand
	row   row
	tries int
}

func (c *contender) note(e Event) {
	e.By, e.Path = c.name, c.path
	c.record(e)
}

// What ends an attempt without a lease.
const (
	unlimited  = "" // nothing
	byDeadline = "a deadline"
	byCancel   = "a cancellation"
	byTry      = "one try"
)

// call records the start of an attempt, and its limit, which does not end it before a certain time.
func (c *contender) call(limit string, after time.Duration) {
	c.tries++
	c.note(Event{What: Called, Try: c.tries, Text: limit, Value: int64(after)})
}

// acquire records the result of the current attempt. Without a lease it returns nil.
func (c *contender) acquire(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) *recipes.Lease {
	lease, err := acquire(ctx)
	if err != nil {
		c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
		return nil
	}
	c.took(lease)
	return lease
}

// took records that the current attempt was granted, and later the end of the lease's context.
func (c *contender) took(lease *recipes.Lease) {
	c.note(Event{What: Granted, Try: c.tries, Token: lease.FencingToken(), Znode: lease.Path()})
	c.observe(lease)
}

// observe records when the lease's context ends.
func (c *contender) observe(lease *recipes.Lease) {
	try, token := c.tries, lease.FencingToken()
	c.ends.Add(1)
	context.AfterFunc(lease.Context(), func() {
		defer c.ends.Done()
		c.note(Event{What: Ended, Try: try, Token: token, Text: context.Cause(lease.Context()).Error()})
	})
}

func (c *contender) release(lease *recipes.Lease) { c.releaseTry(lease, c.tries) }

// releaseTry is release for the lease of an attempt that need not be the latest.
func (c *contender) releaseTry(lease *recipes.Lease, try int) {
	token := lease.FencingToken()
	c.note(Event{What: Releasing, Try: try, Token: token})
	text := ""
	if err := lease.Release(); err != nil {
		text = err.Error()
	}
	c.note(Event{What: Released, Try: try, Token: token, Text: text})
	if lease.Context().Err() == nil {
		c.note(Event{What: Standing, Try: try, Token: token})
	}
}

// upTo is a random duration.
func (c *contender) upTo(d time.Duration) time.Duration {
	return time.Duration(c.rand.Int64N(int64(d)))
}

// linger waits, or until the channel is closed.
func linger(d time.Duration, done <-chan struct{}) {
	select {
	case <-time.After(d):
	case <-done:
	}
}
