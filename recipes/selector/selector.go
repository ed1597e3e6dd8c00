package selector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/election"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// TakeLeadership is the work of a leader. The selector leads until the function returns. ctx is the term's context:
// when ctx ends, the function has to return, because no successor can lead until then. Calls never overlap. The error
// handler or the log gets an error or a panic. An error that only reports the end of ctx is ignored. Every branch of
// such an error's joined or wrapped errors leads to ctx.Err() or context.Cause(ctx).
type TakeLeadership func(ctx context.Context, term *recipes.Lease) error

// LeaderSelector is a participant in the election of a leader, and calls a function for each of its terms.
// Create a selector with [New], and enter the election with Start or Run.
type LeaderSelector struct {
	base           recipe.Base
	candidate      *election.Candidate
	handlerCalls   *callbacks.Order // of the error handler
	takeLeadership TakeLeadership
	config         config

	mu             sync.Mutex     // protects the fields below
	requeuesAlways bool           // another attempt follows each term
	isInRun        bool           // Run started the selector and did not return
	isQueued       bool           // an attempt is wanted or under way
	isRunOver      bool           // Run is to return, and no attempt follows the last one
	attempts       int            // that ended
	term           *session.Entry // the latest term; nil: none yet
	lastFailure    error          // of the last attempt; nil while another is wanted
	errForRun      error          // of the last attempt, which Run returns instead of logging it
	changes        zkutil.Changes // of isQueued, isRunOver and lastFailure
}

// New returns a selector on path, an absolute path below the client's namespace. All selectors on the same path
// are in one election. take is called for each term of the new selector. New sends nothing to the server.
//
// A path with a segment that has the name of a contender, such as lock-0000000000, is refused with
// ErrInvalidPath: such a znode would block a lock or an election on the parent path.
func New(c *recipes.Client, path string, take TakeLeadership, opts ...Option) (*LeaderSelector, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: "selector", Prefix: "lock-", Rule: queue.Exclusive, KeepNode: true})
	if err != nil {
		return nil, err
	}
	if take == nil {
		return nil, base.InvalidArgument("new", errors.New("nil function"))
	}
	cfg, err := configure(opts)
	if err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	s := &LeaderSelector{base: base, takeLeadership: take, config: cfg, requeuesAlways: cfg.isAuto}
	base.Queue.Data, base.Queue.Name, base.Queue.MaxHold = cfg.id, cfg.name, cfg.maxHold
	base.Queue.OnObserveRefused = func(err error) { s.postToHandler(base.OpError("observe", err)) }
	if cfg.priority != nil {
		base.SetPriority(*cfg.priority)
	}
	s.candidate = election.NewCandidate(base.Queue, s.onRefused)
	s.handlerCalls = s.candidate.Callbacks()
	return s, nil
}

// Start enters the election and returns at once. The selector waits for a server as long as necessary. Start
// fails with ErrClosed after Close, and with ErrAlreadyStarted after an earlier Start or Run.
//
// Without [WithAutoRequeue] the selector leaves the election after one term.
func (s *LeaderSelector) Start() error {
	if err := s.base.Check("start"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordStartLocked(s.candidate.Start(s.runCampaign))
}

// recordStartLocked lets the first attempt begin, unless the campaign could not start because of err.
func (s *LeaderSelector) recordStartLocked(err error) error {
	if err != nil {
		return s.base.OpError("start", err)
	}
	s.isQueued = true
	s.changes.AnnounceLocked()
	return nil
}

// startForRun is Start with a campaign that ends with the context of Run.
func (s *LeaderSelector) startForRun(ctx context.Context) error {
	start, abandon := s.candidate.PrepareWithin(ctx, s.runCampaign)
	s.mu.Lock()
	err := s.recordStartLocked(start())
	s.isInRun = s.isInRun || err == nil
	s.mu.Unlock()
	if err != nil {
		abandon()
	}
	return err
}

// Run starts the selector, waits until ctx ends or the selector is finished, and closes the selector. Run suits
// errgroup and main. The contexts of the terms have the values of ctx, and end with its cause when ctx ends.
//
// With [WithAutoRequeue] the selector is finished when it gives up, after too many failures (see [WithRequeueBackoff])
// or when no sequence numbers are left. Without automatic requeue, the selector is also finished after a term, unless
// Requeue or AutoRequeue was called before the error handler returned. While the server refuses, Run continues (see
// [WithErrorHandler]).
//
// Run returns nil after an orderly stop, because ctx was cancelled or a term ended by the function's return,
// InterruptLeadership or Release, if the function did not fail. Otherwise it returns
//
//   - the error of ctx after its deadline, DeadlineExceeded: in a *recipes.WaitError, which matches ErrNotAcquired, if
//     the selector never led;
//   - the function's error, joined with the loss if the term was lost (ErrSessionLost, ErrSuspended,
//     ErrNodeDeleted), if no term followed;
//   - ErrSequenceExhausted;
//   - the error of Start or Close: ErrAlreadyStarted, ErrStepDownGrace, ErrNodeNotDeleted;
//   - ErrClosed if the client or the selector was closed meanwhile.
//
// The error handler gets an error returned by Run as well. The log does not.
func (s *LeaderSelector) Run(ctx context.Context) error {
	if err := s.base.Check("run"); err != nil {
		return err
	}
	startedAt := time.Now()
	if err := s.startForRun(ctx); err != nil {
		return err
	}
	whileRunning, cancel := s.candidate.WithCampaign(context.WithoutCancel(ctx)) // the campaign ends with ctx
	defer cancel()
	isOver := s.awaitCondition(whileRunning, func() bool { return s.isRunOver }) == nil
	isInOrder := isOver || ctx.Err() != nil
	errClosed := s.candidate.CheckRunning() // before Close, so that the text names the client if it was closed
	err := s.Close()
	s.mu.Lock()
	s.isInRun = false // a failure from now on is logged
	lastFailure, unloggedErr, neverLed := s.lastFailure, s.errForRun, s.term == nil
	s.mu.Unlock()
	if !isInOrder {
		s.logUnhandled(unloggedErr)
		return zkutil.Both(s.base.OpError("run", errClosed), err)
	}
	if !isOver && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		late := zkutil.EndOf(ctx)
		if neverLed {
			late = recipe.PublicError(s.candidate.NotAcquired(late, startedAt))
		}
		err = zkutil.Both(s.base.OpError("run", late), err)
	}
	return zkutil.Both(lastFailure, err)
}

// AutoRequeue makes the selector join again, at the tail, after each term. It joins at once, or after a pause if the
// function failed or the term was short. A selector outside the election joins again now.
func (s *LeaderSelector) AutoRequeue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requeuesAlways = true
	s.requeueLocked()
}

// Requeue makes a selector outside the election join again, at the tail, for one term. After a short term the selector
// pauses first (see [WithRequeueBackoff]). Requeue does nothing and returns false while the selector waits or leads,
// before Start, after Close or the end of Run's context, and when Run is about to return.
func (s *LeaderSelector) Requeue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requeueLocked()
}

func (s *LeaderSelector) requeueLocked() bool {
	s.base.MustCheck("requeue")
	if !s.candidate.IsUnderWay() || s.isQueued || s.isRunOver {
		return false
	}
	s.isQueued, s.lastFailure = true, nil
	s.changes.AnnounceLocked()
	return true
}

// InterruptLeadership ends the present term, if any. The term's context ends, the function has to return, then the
// znode is deleted and the next participant leads. InterruptLeadership returns at once. The selector then continues as
// after any other term.
func (s *LeaderSelector) InterruptLeadership() {
	if term := s.currentTerm(); term != nil {
		_ = term.Leave() // the function learns of a loss from the context of the term
	}
}

// HasLeadership reports whether this selector leads now. It goes by the clock. After a pause of the process the answer
// is right even before the term's context ends. The answer may be outdated by the time the caller reads it, so do
// critical work in the function.
func (s *LeaderSelector) HasLeadership() bool { return s.currentTerm() != nil }

// currentTerm returns nil while the selector does not lead.
func (s *LeaderSelector) currentTerm() *session.Entry {
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	if term == nil || !term.Stands() {
		return nil
	}
	return term
}

// ID returns the ID by which other participants see this selector. It is the ID set by [WithID], or else the client's.
func (s *LeaderSelector) ID() string { return s.base.ID() }

// Path returns the path of the znode with which this selector waits or leads, namespace included, and "" while the
// selector has no znode. That includes the time after the deletion or expiry of a term's znode, until the function
// returns.
func (s *LeaderSelector) Path() string {
	s.base.MustCheck("path")
	return s.candidate.Path()
}

// Leader returns the first participant of the election, as known to the server, and the zero Participant if there is
// none. Leader needs no Start. The first participant need not lead (see [recipes.Participant]).
func (s *LeaderSelector) Leader(ctx context.Context) (recipes.Participant, error) {
	return s.base.Leader(ctx)
}

// Participants returns all participants in the order of the queue, the leader first. The result is a snapshot, without
// participants that leave meanwhile. A participant whose znode may not be read has an empty ID.
func (s *LeaderSelector) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return s.base.Participants(ctx)
}

// Observe returns the present leader and each later leader, and the zero Participant while there is none. Observe needs
// no Start. A slow reader misses outdated leaders. While the server refuses, Observe tries again, and reports each
// refusal once, to the log at Warn and to the error handler. The channel is closed when ctx ends or the client is
// closed.
func (s *LeaderSelector) Observe(ctx context.Context) <-chan recipes.Participant {
	return s.base.Observe(ctx)
}

// TransferTo makes the candidate with the given id the leader. It asks all candidates ahead of that one to yield, and returns once that
// one is the first. The leader steps down in the order of every step-down, so TransferTo waits for its work; ctx bounds the wait. Any
// selector of the path can be used, started or not, of any process. All candidates ahead need [WithPriority]. The transfer lasts for as
// long as the new leader leads, unless a candidate joins whose priority is higher than those of all others. The candidates that take part
// now do not ask the new leader to yield.
//
// The error is ErrNoCandidate if not exactly one candidate has the id for 3 s, or if it leaves, ErrNotSteered if a candidate ahead has no
// priority, the error of ctx, or one of the server. Candidates that yielded by then stay behind. Inside the work of the leader, call
// TransferTo with the context of the term. It returns when the step-down begins.
func (s *LeaderSelector) TransferTo(ctx context.Context, id string) error {
	return s.base.TransferTo(ctx, id)
}

// Close leaves the election. If the function runs, the term's context ends, the function returns, and then the znode is
// deleted. So no successor leads while the work of this leader still runs. Close returns nil when the znode is deleted,
// or when the client is closed, because the znode is deleted with the session. It returns ErrStepDownGrace if the
// function still runs after the grace of [WithStepDownGrace]. Then the znode exists until the function returns. It
// returns ErrNodeNotDeleted if the znode could not be deleted within the operation timeout. Then the deletion is
// repeated in the background. Elections and leases of a client that are closed while no server answers share one
// operation timeout. Close is idempotent, and waits again when called again.
//
// Inside the function or the error handler of this selector, Close starts the whole sequence and returns nil at
// once. Inside a callback of another recipe or of another selector Close waits. Two functions that close each
// other's selector wait for the grace. So does a function that waits for its own goroutine to close the
// selector.
func (s *LeaderSelector) Close() error {
	if err := s.base.Check("close"); err != nil {
		return err
	}
	s.candidate.Stop()
	if err := s.candidate.Wait(s.config.grace); err != nil {
		return s.base.OpError("close", err)
	}
	return nil
}
