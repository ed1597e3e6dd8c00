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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/shared"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Once runs a function at most once for each occurrence of an event, in all processes that use the path. Create a
// Once with [New]; it needs no closing, is immutable, and may be used by any number of goroutines.
type Once struct {
	base   recipe.Base
	record string // path of the znode of the record
	config config
	starts *starts // of this client at the path
}

// Option configures a [Once], in New alone.
type Option func(*config) error

// config has the values set by the options.
type config struct {
	id       []byte // nil for the client's
	name     string
	retries  bool
	pause    time.Duration // before an occurrence runs again
	maxRuns  int           // of one occurrence; 0: any number
	skips    bool          // see WithSkip
	deadline time.Duration // of a start, after the instant of the occurrence; 0: none
	maxHold  time.Duration // 0: none
}

// WithID sets the ID that the record shows for this process; the default is the id of the client (see recipes.WithID).
// At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name, of at most 128 bytes, which is the same in all processes. The hooks of [recipes.Trace] get
// the name as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithRetry runs the latest occurrence again if its run failed, or was started and never finished. It runs at least
// once until fn succeeds, in place of at most once. Then fn must be able to run twice. All processes of a path must
// choose the same.
func WithRetry() Option {
	return func(cfg *config) error {
		cfg.retries = true
		return nil
	}
}

// WithRetryPause is [WithRetry] with a pause. An occurrence runs again d after the latest record of its last run, by the servers' clock, at
// the earliest. A Do whose turn is earlier waits with the lock, for as long as its ctx allows, so that later occurrences wait as well.
// WithMaxRuns bounds the number of pauses. The wait of DoWithin does not bound the pause. Without the pause, twenty hosts that ask for an
// occurrence run a failing job twenty times in a row.
func WithRetryPause(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.retries, cfg.pause = true, d
		return option.CheckPositive("retry pause", d)
	}
}

// WithMaxRuns is [WithRetry] with a bound. An occurrence is run n times at most. After the start of the last run, Do fails with a
// *DoneError, whose record has the failure of that run once it ended.
func WithMaxRuns(n int) Option {
	return func(cfg *config) error {
		cfg.retries, cfg.maxRuns = true, n
		if n <= 0 {
			return fmt.Errorf("max runs: %d is not positive", n)
		}
		return nil
	}
}

// WithSkip makes Do fail with a *RunningError, which matches ErrRunning, during another run of the path, as most schedulers skip a
// tick in this case. Without WithSkip, Do waits for the end of the run, and then runs the next occurrence late. A run lasts while its
// end is not recorded and its process has the lock. So the run of a killed process lasts until its session expires. With [WithRetry],
// a Do of the occurrence that is running waits, because the run may fail.
//
// Do tries first, and waits only if no run is in progress. The hooks of [recipes.Trace] see an acquisition for each.
func WithSkip() Option {
	return func(cfg *config) error {
		cfg.skips = true
		return nil
	}
}

// WithMaxHold ends the context of a run with ErrMaxHold once its process held the lock for d. Use it to bound jobs that hang. A pause of
// [WithRetryPause] counts, too, and must be shorter than d: New refuses other values. As with a mutex, the end asks the function to return,
// and cannot make it return. Until then no other host runs an occurrence of the path. The error of Do matches ErrMaxHold, and the end of
// the run is recorded as that of any other.
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithDeadline bounds how late an occurrence may start: d after its instant, by the servers' clock. Do then fails with
// ErrTooLate in place of a run, so that a report of the night does not begin at noon. Without WithDeadline, an occurrence may
// start at any time until a later one has. All occurrences of the path must be those of [At], or RFC 3339 times.
func WithDeadline(d time.Duration) Option {
	return func(cfg *config) error {
		if d <= 0 {
			return fmt.Errorf("deadline: %v is not positive", d)
		}
		cfg.deadline = d
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
	if cfg.maxHold > 0 && cfg.pause >= cfg.maxHold {
		return nil, base.InvalidArgument("new", fmt.Errorf("retry pause of %v, which the max hold of %v does not outlast", cfg.pause, cfg.maxHold))
	}
	base.Queue.Data, base.Queue.Name, base.Queue.MaxHold = cfg.id, cfg.name, cfg.maxHold
	base.Queue.SlowHold = base.Queue.Session.Config().SlowWait // when the hosts that wait for the next occurrence log their waits
	record := zkutil.Join(base.Queue.Dir, recordName)
	starts := shared.Value(base.Queue.Session.Shared(), startsKey(record), newStarts)
	return &Once{base: base, record: record, config: cfg, starts: starts}, nil
}

// errNested is the error of a Do below the function of another Do on the same path.
var errNested = zkutil.Invalid(errors.New("called inside the function of a Do on the same path"))

// Do calls fn, unless the occurrence was started before, on any host, or a later one was (see the package comment for the
// order of occurrences). While fn runs, its process holds the lock on the path. ctx bounds both the wait for the lock and
// the work. The context passed to fn ends with the lease, with ctx, or when fn returns.
//
// If fn was not called, the error is
//
//   - a *DoneError, which matches ErrDone and has the record of the run, if the occurrence is done, or with the default of
//     at most once also if its run is in progress. The answer needs no lock. A Do that waits for the lock returns as soon
//     as another process starts the occurrence;
//   - a *SupersededError, which matches ErrSuperseded, if a later occurrence was started. No record shows whether that of
//     the call ran;
//   - a *RunningError, which matches ErrRunning, with [WithSkip] during another run;
//   - ErrFormat if the occurrence can't be ordered after the latest one;
//   - ErrTooEarly for an instant more than a minute ahead of the servers' clock, ErrTooLate after the time of WithDeadline;
//   - a *recipes.WaitError if ctx ends before the lock is acquired, or in the pause of [WithRetryPause];
//   - ErrRecord if the znode of the record has a content of another program;
//   - ErrInvalidArgument, with nothing sent, for a nil function, an invalid occurrence, or a call inside the function of
//     another Do on the path, or for an occurrence that is no instant if there is a deadline;
//   - or any other error of Acquire of a mutex, or of a write.
//
// Then the occurrence is not used up: another call may run it. Should it be unknown whether the start was recorded, the client
// takes the start back in the background, and keeps the lock until that is done. The next Do on the client waits for it, and so does
// Close, for an operation timeout at most. A start that stays is logged.
//
// If fn was called, Do returns what InterProcessMutex.Do returns, which is fn's error, joined with the loss of the lease if the
// lease was lost. In addition the error matches ErrNotRecorded if the end of the run could not be recorded within the operation
// timeout although the lease was not lost, or because fn released the lease. If fn panics, Do records a failure, releases the
// lock, and panics on.
func (o *Once) Do(ctx context.Context, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if err := o.check(ctx, occurrence, fn); err != nil {
		return err
	}
	return recipe.Do(ctx, o.base.OpError, o.acquireFor(occurrence, true), o.endWork, o.runOf(occurrence, fn))
}

// DoWithin is Do with a bound on the acquisition alone: wait bounds the wait for the lock, and ctx the work, and the
// whole. If the lock was not acquired within wait, or before the end of ctx, the error has a *recipes.WaitError. With a wait of
// 0 or less, DoWithin does not wait for other processes.
func (o *Once) DoWithin(ctx context.Context, wait time.Duration, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if err := o.check(ctx, occurrence, fn); err != nil {
		return err
	}
	acquire := recipe.Within(wait, o.acquireFor(occurrence, true), o.acquireFor(occurrence, false))
	return recipe.Do(ctx, o.base.OpError, acquire, o.endWork, o.runOf(occurrence, fn))
}

// check checks the arguments of Do.
func (o *Once) check(ctx context.Context, occurrence string, fn func(context.Context, *recipes.Lease) error) error {
	if err := o.base.Check("do"); err != nil {
		return err
	}
	if fn == nil {
		return o.base.InvalidArgument("do", errors.New("nil function"))
	}
	if err := checkOccurrence(occurrence); err != nil {
		return o.base.InvalidArgument("do", err)
	}
	if _, isInstant := instantOf(occurrence); o.config.deadline > 0 && !isInstant {
		return o.base.InvalidArgument("do", fmt.Errorf("occurrence %s is not an instant, which WithDeadline requires", zkutil.Printable(occurrence)))
	}
	if err := o.base.Queue.Refuse(ctx, errNested); err != nil {
		return o.base.OpError("do", err)
	}
	return nil
}

// acquireFor returns the acquisition for an occurrence, which fails once the record shows that the occurrence must not run.
func (o *Once) acquireFor(occurrence string, mayWait bool) func(context.Context) (*recipes.Lease, error) {
	return func(ctx context.Context) (*recipes.Lease, error) {
		return o.acquire(ctx, occurrence, mayWait)
	}
}

func (o *Once) runOf(occurrence string, fn func(context.Context, *recipes.Lease) error) func(context.Context, *recipes.Lease) error {
	return func(ctx context.Context, lease *recipes.Lease) error { return o.run(ctx, lease, occurrence, fn) }
}

// Last returns the record of the latest occurrence, and the zero Record if there was none. It needs no lock, and does
// not wait for other clients. An error matches ErrRecord if the znode of the record has a content of another program.
func (o *Once) Last(ctx context.Context) (Record, error) {
	if err := o.base.Check("last"); err != nil {
		return Record{}, err
	}
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
	starting, cancel, err := o.whileDue(ctx, lease, occurrence)
	if err != nil {
		return &recipe.NotCalledError{Err: err}
	}
	defer cancel()
	if err := o.awaitPause(starting, lease, occurrence); err != nil {
		return &recipe.NotCalledError{Err: err}
	}
	begun := Record{Occurrence: occurrence, ID: o.base.ID(), Token: lease.FencingToken(), StartedAt: time.Now()}
	version, err := o.start(starting, lease, &begun)
	cancel()
	if err != nil {
		return &recipe.NotCalledError{Err: err}
	}
	finish := func(failure error) error {
		recipe.EndWorkContext(ctx)                      // before others can have the lock
		return o.finish(lease, version, begun, failure) //nolint:contextcheck // by the lease's context
	}
	hasReturned := false
	defer func() {
		if !hasReturned { // a panic, or runtime.Goexit, continues
			_ = finish(errPanicked)
		}
	}()
	err = fn(ctx, lease)
	hasReturned = true
	if unrecorded := finish(err); unrecorded != nil {
		return o.base.OpError("do", zkutil.LossAndError(unrecorded, err))
	}
	return err
}

var errPanicked = errors.New("panic")

// start writes the record of a start, and returns the version of the record. It sets begun.Runs. If that fails, or ctx ends meanwhile, no
// record of the start remains (see takeBack).
//
//nolint:gocognit // one loop over what a read may show
func (o *Once) start(ctx context.Context, lease *recipes.Lease, begun *Record) (version int32, err error) {
	s := o.base.Queue.Session
	settle := o.starts.begin(begun.Token, s.BeginUndoable())
	isOwn := func(data []byte) bool {
		last, err := decode(data)
		return err == nil && last.Token == begun.Token && last.Occurrence == begun.Occurrence
	}
	var pending *znodes.Guarded // the latest write whose outcome is not known
	var before session.Node     // the record that it replaces
	for {
		node, last, err := o.read(ctx, begun.Token)
		refusal, isRefused := o.refusal(last, begun.Occurrence).(*refused) //nolint:errorlint // never wrapped
		switch {
		case err != nil:
		case pending != nil && isOwn(node.Data):
			version = node.Stat.Version
		case isRefused:
			settle(false)
			return 0, o.reported(refusal) // because of others, as a pending write was refused
		case node.Stat.Czxid > lease.FencingToken():
			err = errForgotten
		default:
			begun.Runs = 1
			if isSame(begun.Occurrence, last.Occurrence) {
				begun.Runs += last.Runs
			}
			write := znodes.Guarded{Guard: lease.Path(), Path: o.record, Data: begun.encode(), Version: node.Stat.Version}
			var isUncertain bool
			isUncertain, err = znodes.WriteGuarded(ctx, s, write)
			version = write.Version + 1
			if err == nil || isUncertain {
				pending, before = &write, node
			}
			if errors.Is(err, zk.ErrNoNode) { // another client deleted the record since the wait began
				if err = znodes.Create(ctx, s, o.record, []byte{}); err == nil {
					continue
				}
			}
			if errors.Is(err, zk.ErrBadVersion) {
				continue // our own write was first, or a start was taken back
			}
		}
		if err == nil && ctx.Err() != nil { // fn would have no time left
			err = zkutil.EndOf(ctx)
		}
		if err != nil && pending != nil {
			o.takeBack(ctx, *begun, znodes.Undo{Write: *pending, Czxid: before.Stat.Czxid, Before: before.Data, IsOwn: isOwn}, settle)
		} else {
			settle(false)
		}
		if err != nil {
			err = fmt.Errorf("the start was not recorded, so the function was not called: %w", err)
		}
		return version, err
	}
}

// errForgotten is the error of a start under a lease that is older than the record.
var errForgotten = errors.New("the record was erased while Do waited for the lock, so it is unknown whether the occurrence ran")

// finish records the end of a run, and gives the lock up in the same transaction. If that fails, or can't be sent, finish records the end under
// the lock's znode, which Do then deletes. At most one of the two transactions takes effect, because both need the same version of the record.
// A lease that was lost needs no record, because Do returns the loss. A lease that fn released is not lost.
func (o *Once) finish(lease *recipes.Lease, version int32, begun Record, failure error) error {
	s := o.base.Queue.Session
	recipe.NoteReturned(lease)
	if cause := context.Cause(lease.Context()); errors.Is(cause, recipes.ErrReleased) {
		return fmt.Errorf("%w: %w", ErrNotRecorded, cause)
	}
	held, release := whileHeld(lease)
	defer release()
	ctx, cancel := context.WithTimeout(held, s.Config().OperationTimeout)
	defer cancel()
	end := begun
	end.FinishedAt, end.Finished = time.Now(), failure == nil
	if failure != nil {
		end.Failure = shortened(fmt.Sprint(failure)) // which survives a panic in Error
	}
	write := znodes.Guarded{Guard: lease.Path(), Path: o.record, Data: end.encode(), Version: version}
	isSent, err := recipe.ReleaseWriting(ctx, lease, write.Path, write.Data, version)
	if isSent && err == nil {
		return nil
	}
	isUncertain := isSent && zkutil.IsUnanswered(err)
	_, err = znodes.WriteGuarded(ctx, s, write)
	if zkutil.IsAny(err, zk.ErrBadVersion, zkutil.ErrNodeDeleted) { // perhaps because a transaction without an answer took effect
		_, last, readErr := o.read(ctx, begun.Token)
		isRecorded := !last.FinishedAt.IsZero()
		if last.Token != begun.Token { // by the next run; while the session lives, no other request of this client deletes the znode
			isRecorded = isUncertain && errors.Is(err, zkutil.ErrNodeDeleted) && !recipe.IsGone(lease)
			if failure == nil && isSame(last.Occurrence, begun.Occurrence) { // which no host runs again after a recorded success
				isRecorded = false
			}
		}
		if isRecorded {
			err = readErr
		}
	}
	if err == nil || context.Cause(held) != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

// whileHeld derives a context that ends when a lease is lost. It does not end when the client closes, because Close waits for the run and its
// record, nor at the end of WithMaxHold or in finish, because the znode stays until Do ends.
func whileHeld(lease *recipes.Lease) (held context.Context, release func()) {
	held, end := context.WithCancelCause(session.Finishing(context.WithoutCancel(lease.Context())))
	endWithLease := func() {
		if cause := context.Cause(lease.Context()); cause != nil && !zkutil.IsAny(cause, recipes.ErrReleased, recipes.ErrClosed, recipes.ErrMaxHold) {
			end(cause)
		}
	}
	unbind := context.AfterFunc(lease.Context(), endWithLease)
	endWithLease() // at once, if the lease ended
	return held, func() {
		unbind()
		end(nil)
	}
}
