package selector

import (
	"context"
	"errors"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TakeLeadership is the work of a leader, who leads until it returns. ctx is the
// term's context: when that ends the function has to return, for no successor can lead
// before. Calls never overlap. An error or a panic goes to the error handler, or to the log;
// an error that only reports the end of ctx is ignored. It does when each of the errors that
// it joins or wraps leads to ctx.Err() or context.Cause(ctx).
type TakeLeadership func(ctx context.Context, term *recipes.Lease) error

// LeaderSelector is one participant in the election of a leader, and calls a function
// whenever it is elected. Create it with [New], enter the election with Start or Run.
type LeaderSelector struct {
	path      string // as given
	queue     *zkutil.Queue
	candidate *zkutil.Candidate
	order     *zkutil.Callbacks // of the error handler
	take      TakeLeadership
	cfg       config // but for auto, which AutoRequeue sets

	mu       sync.Mutex // protects what is below
	auto     bool
	inRun    bool          // Run has started it
	queued   bool          // an attempt is wanted or under way
	over     bool          // Run returns: the term is over, and nobody has asked for another
	attempt  int           // counts the attempts that have ended
	term     *zkutil.Entry // the latest; nil: none yet
	failure  error         // of the last attempt, when no other is wanted
	unlogged error         // of the attempt after which Run returns
	changed  chan struct{} // closed when queued, over or failure changes; nil: nobody waits for that
}

// New returns a selector on path, an absolute path below the client's namespace; all
// selectors on that path are one election. take is called whenever this one is
// elected. Nothing is sent to the server here.
func New(c *recipes.Client, path string, take TakeLeadership, opts ...Option) (*LeaderSelector, error) {
	failed := func(err error) (*LeaderSelector, error) {
		return nil, &recipes.OpError{Op: "selector: new", Path: path, Err: zkutil.Invalid(err)}
	}
	session, dir, err := c.Attach(zkutil.RecipeAccess(), path)
	if err != nil {
		return failed(err)
	}
	if take == nil {
		return failed(errors.New("nil function"))
	}
	cfg, err := configure(opts)
	if err != nil {
		return failed(err)
	}
	s := &LeaderSelector{
		path: path,
		take: take,
		cfg:  cfg,
		auto: cfg.auto,
		queue: &zkutil.Queue{
			Session: session,
			Recipe:  "selector",
			Dir:     dir,
			Prefix:  "lock-",
			Markers: zkutil.Markers,
			Data:    cfg.id,
			Rule:    zkutil.Exclusive,
			Keep:    true,
		},
	}
	s.queue.OnUnseen = func(err error) { s.tell(s.opError("observe", err)) }
	s.candidate = zkutil.NewCandidate(s.queue, s.onRefused)
	s.order = s.candidate.Callbacks()
	return s, nil
}

// Start enters the election and returns at once; without a server it goes on until
// there is one. It fails with ErrClosed after Close, and with ErrAlreadyStarted when Start
// or Run was called before.
//
// Without [WithAutoRequeue] the selector leaves the election after one term.
func (s *LeaderSelector) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noteStartLocked(s.candidate.Start(s.campaign))
}

// noteStartLocked makes the first attempt begin if the campaign has started.
func (s *LeaderSelector) noteStartLocked(err error) error {
	if err != nil {
		return s.opError("start", err)
	}
	s.queued = true
	s.announce()
	return nil
}

func (s *LeaderSelector) startRun(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.noteStartLocked(s.candidate.StartWithin(ctx, s.campaign))
	s.inRun = s.inRun || err == nil
	return err
}

// Run starts the selector, waits until ctx or the election is over for it, and closes it: for
// errgroup and main. The contexts of its terms have the values of ctx, and end with its cause
// when it ends.
//
// With [WithAutoRequeue] the election is over when the selector gives up: after too many
// failures, see [WithRequeueBackoff], or when the sequence numbers have run out. Without, it is
// also over after a term, unless Requeue or AutoRequeue has asked for another by the time that
// the error handler has returned. While the server refuses, Run goes on: see
// [WithErrorHandler].
//
// Run returns nil once everything has stopped in order: after the end of ctx, or after a term
// that has ended by the function's return, InterruptLeadership or Release, and the function
// has not failed. Otherwise it returns
//
//   - the function's error, joined with the loss of the term if there was one (ErrSessionLost,
//     ErrSuspended, ErrNodeDeleted), if nothing followed on that term;
//   - ErrSequenceExhausted;
//   - the error of Start or Close: ErrAlreadyStarted, ErrStepDownGrace, ErrNodeNotDeleted;
//   - ErrClosed if the client or the selector was closed meanwhile.
//
// An error that Run returns goes to the error handler as well, but not to the log.
func (s *LeaderSelector) Run(ctx context.Context) error {
	if err := s.startRun(ctx); err != nil {
		return err
	}
	ended, cancel := s.candidate.While(context.WithoutCancel(ctx)) // the campaign ends with ctx
	defer cancel()
	over := s.await(ended, func() bool { return s.over }) == nil
	inOrder := over || ctx.Err() != nil
	closed := s.candidate.Running() // before Close: the client or the selector, and the text says which
	err := s.Close()
	s.mu.Lock()
	s.inRun = false // a failure from now on is logged
	failure, unlogged := s.failure, s.unlogged
	s.mu.Unlock()
	if !inOrder {
		s.log(unlogged)
		return zkutil.Both(s.opError("run", closed), err)
	}
	return zkutil.Both(failure, err)
}

// AutoRequeue makes the selector stand again, at the tail, after each term: at once,
// or after a pause when the function has failed or the term was short. It holds from now on,
// for a selector that has left the election as well.
func (s *LeaderSelector) AutoRequeue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = true
	s.requeueLocked()
}

// Requeue makes a selector that has left the election stand again, at the tail, for one
// term; one after a short term begins with a pause: see [WithRequeueBackoff]. It reports
// false, and does nothing, while one is waiting or leading, before Start, after Close, and
// once Run is about to return.
func (s *LeaderSelector) Requeue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requeueLocked()
}

func (s *LeaderSelector) requeueLocked() bool {
	if s.candidate.Running() != nil || s.queued || s.over {
		return false
	}
	s.queued, s.failure = true, nil
	s.announce()
	return true
}

// InterruptLeadership ends the present term, if any: its context ends, the function has
// to return, then the znode goes and the next participant leads. It returns at once. The
// selector goes on as after any term.
func (s *LeaderSelector) InterruptLeadership() {
	if term := s.leading(); term != nil {
		_ = term.Leave() // a loss is the function's to know
	}
}

// HasLeadership reports whether this selector leads now, by the clock: after a pause of
// the process it tells the truth even before the function was told of the loss. The
// answer may be outdated when it is read; work that matters belongs into the function.
func (s *LeaderSelector) HasLeadership() bool { return s.leading() != nil }

func (s *LeaderSelector) leading() *zkutil.Entry {
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	if term == nil || !term.Stands() {
		return nil
	}
	return term
}

// ID returns what others see of this participant: what [WithID] has set, or the host's
// address.
func (s *LeaderSelector) ID() string { return s.queue.ID() }

// Path returns the path of the znode with which this selector waits or leads, namespace
// included, and "" while it has none.
func (s *LeaderSelector) Path() string { return s.candidate.Path() }

// Leader returns who is first in the election, as the server knows it, or the zero
// Participant when nobody takes part. It needs no Start. Who is first need not lead: see
// [recipes.Participant].
func (s *LeaderSelector) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := s.queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, &recipes.OpError{Op: "selector: leader", Path: s.path, Err: err}
	}
	return recipes.ParticipantOf(first), nil
}

// Participants returns those who take part, in the order in which they will lead, the
// leader first. It is a snapshot: those who leave while it is taken are left out. One that may
// not be read has an empty ID.
func (s *LeaderSelector) Participants(ctx context.Context) ([]recipes.Participant, error) {
	queue, err := s.queue.Participants(ctx)
	if err != nil {
		return nil, &recipes.OpError{Op: "selector: participants", Path: s.path, Err: err}
	}
	return recipes.ParticipantsOf(queue), nil
}

// Observe returns the leader as it changes, the present one first, and the zero
// Participant while nobody takes part. It needs no Start. A slow reader misses leaders that
// are outdated by then. Where the server refuses, it goes on and says so in the log, at Warn,
// and to the error handler, once for each refusal. The channel is closed when ctx ends or the
// client is closed.
func (s *LeaderSelector) Observe(ctx context.Context) <-chan recipes.Participant {
	return zkutil.Observe(ctx, s.queue, recipes.ParticipantOf)
}

// Close leaves the election. If the function is running, its term's context ends, the
// function returns, and then the znode goes, so that no successor begins while the work
// of this leader still runs. It returns nil once the znode is gone. After the grace of
// [WithStepDownGrace] it returns ErrStepDownGrace while the function is still running: the
// znode stays until that returns. ErrNodeNotDeleted says that the znode could not be
// deleted within the operation timeout; that goes on in the background.
//
// Inside the function or the error handler of this selector, Close asks for all that and
// returns nil at once. Inside a callback of another recipe, another selector's function
// included, it waits: two functions that close each other's selector wait for the
// grace. So do a function and a goroutine of its own that closes the selector, if the function
// waits for it. Close is idempotent, and waits again when called again.
func (s *LeaderSelector) Close() error {
	s.candidate.Stop()
	if err := s.candidate.Wait(s.cfg.grace); err != nil {
		return &recipes.OpError{Op: "selector: close", Path: s.path, Err: err}
	}
	return nil
}
