package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Setup tells a client process what to be.
type Setup struct {
	Proc    int
	Servers []string
	Timeout time.Duration // of the session
	DSN     string        // of the rows
	Seed    uint64
	ZKLock  bool // contend with go-zookeeper's own lock
}

// The locks, and the rows of the same names.
const (
	fencedPath   = "/chaos/fenced"   // written behind, in SQL and in ZooKeeper
	mixedPath    = "/chaos/mixed"    // re-entrant, with time-outs and cancellations
	revokedPath  = "/chaos/revoked"  // asked back all the time
	latchPath    = "/chaos/latch"    // terms of a LeaderLatch
	selectorPath = "/chaos/selector" // terms of a LeaderSelector
	registerPath = "/register"       // the guarded znode
)

var paths = []string{fencedPath, mixedPath, revokedPath, latchPath, selectorPath}

// worker is a client process.
type worker struct {
	Setup
	*recorder
	client *recipes.Client
	db     *sql.DB
	finish chan struct{}  // closed when each contender is to acquire once more and go
	ends   sync.WaitGroup // of the contexts of all leases
}

// Work is a client process: it contends until its input says "finish", then lets every
// contender acquire once more. Its input's end ends it at once.
func Work(ctx context.Context, s Setup, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{Setup: s, recorder: newRecorder(s.Proc, out), finish: make(chan struct{})}
	go func() { // ends with the input, which nobody waits for: the process does not outlive it
		defer cancel()
		lines := bufio.NewScanner(in)
		if lines.Scan() {
			close(w.finish)
		}
		for lines.Scan() {
		}
	}()
	before := goleak.IgnoreCurrent()
	var err error
	if w.db, err = openRows(s.DSN); err != nil {
		return err
	}
	if s.ZKLock {
		err = w.contendZKLock(ctx)
	} else {
		err = w.contendAll(ctx)
	}
	err = errors.Join(err, w.db.Close())
	left := ""
	if leak := goleak.Find(before); leak != nil {
		left = leak.Error()
	}
	w.record(Event{What: Left, By: fmt.Sprintf("p%d", s.Proc), Text: left})
	return err
}

func (w *worker) contendAll(ctx context.Context) (err error) {
	w.client, err = recipes.Connect(ctx, w.Servers, recipes.WithSessionTimeout(w.Timeout))
	if err != nil {
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
	}
	errs := make([]error, len(bodies))
	for i, body := range bodies {
		c := w.contender(i, body.path)
		all.Go(func() {
			if err := body.run(c, ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	all.Wait()
	err = errors.Join(append(errs, w.client.Close())...)
	w.ends.Wait()
	return err
}

func (w *worker) contender(i int, path string) *contender {
	return &contender{
		worker: w, name: fmt.Sprintf("p%d.%d%s", w.Proc, i, path), path: path,
		rand: rand.New(rand.NewPCG(w.Seed, uint64(w.Proc*100+i))),
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

// contender is one of those who want a lock. Its attempts come one after another.
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

// acquire records an attempt. Without a lease it returns nil.
func (c *contender) acquire(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) *recipes.Lease {
	c.tries++
	c.note(Event{What: Called, Try: c.tries})
	lease, err := acquire(ctx)
	if err != nil {
		c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
		return nil
	}
	c.took(lease)
	return lease
}

// took records that the current attempt was granted, and later that the lease's context ends.
func (c *contender) took(lease *recipes.Lease) {
	try, token := c.tries, lease.FencingToken()
	c.note(Event{What: Granted, Try: try, Token: token, Znode: lease.Path()})
	c.ends.Add(1)
	context.AfterFunc(lease.Context(), func() {
		defer c.ends.Done()
		c.note(Event{What: Ended, Try: try, Token: token, Text: context.Cause(lease.Context()).Error()})
	})
}

func (c *contender) release(lease *recipes.Lease) {
	try, token := c.tries, lease.FencingToken()
	c.note(Event{What: Releasing, Try: try, Token: token})
	text := ""
	if err := lease.Release(); err != nil {
		text = err.Error()
	}
	c.note(Event{What: Released, Try: try, Token: token, Text: text})
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
