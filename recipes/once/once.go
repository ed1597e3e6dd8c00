package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Once runs a function at most once for each occurrence of an event, in all processes that use the path. Create a
// Once with [New]; it needs no closing, is immutable, and may be used by any number of goroutines.
type Once struct {
	base    recipe.Base
	record  string // path of the znode of the record
	retries bool
	starts  *starts // of this client at the path
}

// Option configures a [Once], in New alone.
type Option func(*config) error

// config has the values set by the options.
type config struct {
	id      []byte // nil: the client's
	name    string
	retries bool
}

// WithID sets the ID that the record shows for this process; the default is the id of the client: see
// recipes.WithID. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name, of at most 128 bytes, which is the same in all processes. The hooks of [recipes.Trace] get
// the name as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithRetry runs the latest occurrence again if its run has failed, or was started and never finished: at least
// once until fn succeeds, in place of at most once. Then fn must be able to run twice. All processes of a path must
// choose the same.
func WithRetry() Option {
	return func(cfg *config) error {
		cfg.retries = true
		return nil
	}
}

// New returns a Once on path, an absolute path below the client's namespace. The znodes of path are created when
// first needed. Nothing is sent to the server here. A path with a segment that has the name of a contender, such as
// lock-0000000000, is refused with ErrInvalidPath.
func New(c *recipes.Client, path string, opts ...Option) (*Once, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: "once", Prefix: "lock-", Rule: queue.Exclusive})
	if err != nil {
		return nil, err
	}
	var cfg config
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	base.Queue.Data, base.Queue.Name = cfg.id, cfg.name
	record := zkutil.Join(base.Queue.Dir, recordName)
	starts := session.Share(base.Queue.Session, startsKey(record), newStarts)
	return &Once{base: base, record: record, retries: cfg.retries, starts: starts}, nil
}

// errNested is the error of a Do below the function of another Do on the same path.
var errNested = zkutil.Invalid(errors.New("called inside the function of a Do on the same path"))

// Do calls fn, unless the occurrence has been started before, here or elsewhere, or a later occurrence has: see the
// package comment for the order of occurrences. While fn runs, its process holds the lock on the path. ctx bounds both the
// wait for the lock and the work. The context passed to fn ends with the lease, with ctx, or when fn returns.
//
// If fn was not called, the error is
//
//   - a *DoneError, which matches ErrDone and has the record of the run, if the occurrence is done, or with the default
//     of at most once also if its run is still going on. The answer needs no lock. A Do that waits for the lock returns as
//     soon as another process has started the occurrence;
//   - a *recipes.WaitError if ctx ends before the lock is acquired;
//   - ErrRecord if the znode of the record has a content of another program;
//   - ErrInvalidArgument, with nothing sent, for a nil function, an invalid occurrence, or a call inside the function of
//     another Do on the path;
//   - or any other error of Acquire of a mutex, or of a write.
//
// Then the occurrence is not used up: another call may run it. Should it be unknown whether the start was recorded, the client
// takes the start back in the background, and keeps the lock until that is done. The next Do on the client waits for it, and so does
// Close, for an operation timeout at most. A start that stays is logged.
//
// If fn was called, Do returns what InterProcessMutex.Do returns: fn's error, joined with the loss of the lease if the lease was
// lost. In addition the error matches ErrNotRecorded if the end of the run could not be recorded within the operation
// timeout although the lease was not lost, or because fn had released the lease. If fn panics, Do records a failure, releases the
// lock, and panics on.
func (o *Once) Do(ctx context.Context, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if err := o.check(ctx, occurrence, fn); err != nil {
		return err
	}
	return recipe.Do(ctx, o.lockFor(occurrence), o.runOf(occurrence, fn))
}

// DoWithin is Do with a bound on the acquisition alone: wait bounds the wait for the lock, and ctx the work, and the
// whole. If the lock was not acquired within wait, or before the end of ctx, the error has a *recipes.WaitError. With a wait of
// 0 or less, DoWithin does not wait for other processes: if one has the lock, the error also matches ErrNotAcquired.
func (o *Once) DoWithin(ctx context.Context, wait time.Duration, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if err := o.check(ctx, occurrence, fn); err != nil {
		return err
	}
	return recipe.DoWithin(ctx, wait, o.lockFor(occurrence), o.runOf(occurrence, fn))
}

// check checks the arguments of Do.
func (o *Once) check(ctx context.Context, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if fn == nil {
		return o.base.InvalidArgument("do", errors.New("nil function"))
	}
	if err := checkOccurrence(occurrence); err != nil {
		return o.base.InvalidArgument("do", err)
	}
	if err := o.base.Queue.Refuse(ctx, errNested); err != nil {
		return o.base.OpError("do", err)
	}
	return nil
}

// lockFor returns the lock for an occurrence, whose acquisition fails once the occurrence is done.
func (o *Once) lockFor(occurrence string) recipe.Lock[*recipes.Lease] {
	acquire := func(mayWait bool) func(context.Context) (*recipes.Lease, error) {
		return func(ctx context.Context) (*recipes.Lease, error) {
			return o.acquireUnlessDone(ctx, occurrence, mayWait)
		}
	}
	lock := recipe.LeaseLock(o.base.OpError, acquire(true), acquire(false))
	lock.EndWork = o.endWork
	return lock
}

func (o *Once) runOf(occurrence string, fn func(context.Context, *recipes.Lease) error) func(context.Context, *recipes.Lease) error {
	return func(ctx context.Context, lease *recipes.Lease) error { return o.run(ctx, lease, occurrence, fn) }
}

// Last returns the record of the latest occurrence, and the zero Record if there was none. It needs no lock, and waits
// for nobody. An error matches ErrRecord if the znode of the record has a content of another program.
func (o *Once) Last(ctx context.Context) (Record, error) {
	s := o.base.Queue.Session
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	_, last, err := o.read(ctx, 0)
	if err != nil {
		return Record{}, o.base.OpError("last", err)
	}
	return last, nil
}

// run records the start of an occurrence, calls fn, and records the end. Each start is written on the version of the
// record that was read before, and only while the lease's znode exists. So the record of a start that succeeds is the
// only one, however many processes believe that they hold the lock.
func (o *Once) run(ctx context.Context, lease *recipes.Lease, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	begun := Record{Occurrence: occurrence, ID: o.base.Queue.ID(), Token: lease.FencingToken(), StartedAt: time.Now()}
	version, err := o.start(ctx, lease, begun)
	if err != nil {
		return &recipe.NotCalledError{Err: err}
	}
	hasReturned := false
	defer func() { //nolint:contextcheck // by the lease's context
		if !hasReturned { // a panic, or runtime.Goexit: it goes on
			_ = o.finish(lease, version, begun, errPanicked)
		}
	}()
	err = fn(ctx, lease)
	hasReturned = true
	if unrecorded := o.finish(lease, version, begun, err); unrecorded != nil { //nolint:contextcheck // by the lease's context
		return o.base.OpError("do", zkutil.LossAndError(unrecorded, err))
	}
	return err
}

var errPanicked = errors.New("panic")

// start writes the record of a start, and returns the version of the record. If that fails, or ctx has ended meanwhile, no
// record of the start stays: see takeBack.
//
//nolint:gocognit // one loop over what a read may show
func (o *Once) start(ctx context.Context, lease *recipes.Lease, begun Record) (version int32, err error) {
	s := o.base.Queue.Session
	settle := o.starts.begin(begun.Token, s.Persistent().Unsettled())
	isOwn := func(data []byte) bool {
		last, err := decode(data)
		return err == nil && last.Token == begun.Token && last.Occurrence == begun.Occurrence
	}
	var pending *session.Guarded // the latest write whose outcome is not known
	var before []byte            // the data that it replaces
	for {
		node, last, err := o.read(ctx, begun.Token)
		switch {
		case err != nil:
		case pending != nil && isOwn(node.Data):
			version = node.Stat.Version
		case o.isDone(last, begun.Occurrence):
			settle(false)
			return 0, &DoneError{Occurrence: begun.Occurrence, Last: last} // of others: a pending write has been refused
		default:
			write := session.Guarded{Guard: lease.Path(), Path: o.record, Data: begun.encode(), Version: node.Stat.Version}
			var isUncertain bool
			isUncertain, err = s.Persistent().WriteGuarded(ctx, write)
			version = write.Version + 1
			if err == nil || isUncertain {
				pending, before = &write, node.Data
			}
			if errors.Is(err, zk.ErrNoNode) { // somebody has deleted the record since the wait began
				if err = s.Persistent().Create(ctx, o.record, []byte{}); err == nil {
					continue
				}
			}
			if errors.Is(err, zk.ErrBadVersion) {
				continue // our own write has come first, or a start was taken back
			}
		}
		if err == nil && ctx.Err() != nil { // fn would have no time left
			err = zkutil.EndOf(ctx)
		}
		if err != nil && pending != nil {
			o.takeBack(ctx, begun, session.Undo{Write: *pending, Before: before, IsOwn: isOwn}, settle)
		} else {
			settle(false)
		}
		if err != nil {
			err = fmt.Errorf("the start is not recorded, and the function was not called: %w", err)
		}
		return version, err
	}
}

// finish records the end of a run. A lease that was lost needs no record: Do returns the loss. A lease that fn has released is not lost.
func (o *Once) finish(lease *recipes.Lease, version int32, begun Record, failure error) error {
	s := o.base.Queue.Session
	ctx, cancel := context.WithTimeout(lease.Context(), s.Config().OperationTimeout)
	defer cancel()
	end := begun
	end.FinishedAt, end.Finished = time.Now(), failure == nil
	if failure != nil {
		end.Failure = shortened(fmt.Sprint(failure)) // which survives a panic in Error
	}
	isUncertain, err := s.Persistent().WriteGuarded(ctx, session.Guarded{Guard: lease.Path(), Path: o.record, Data: end.encode(), Version: version})
	if isUncertain && errors.Is(err, zk.ErrBadVersion) {
		var last Record
		if _, last, err = o.read(ctx, begun.Token); err == nil && last.Token != begun.Token {
			err = errOverwritten
		}
	}
	ended := context.Cause(lease.Context())
	if err == nil || ended != nil && !errors.Is(ended, recipes.ErrReleased) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

var errOverwritten = errors.New("the record was overwritten")
