package selector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TakeLeadership is the work of a leader, who leads until it returns. ctx is the
// term's context: when that ends the function has to return, for no successor can lead
// before. Calls never overlap. An error or a panic goes to the error handler; an error
// that only says that ctx has ended does not count as one.
type TakeLeadership func(ctx context.Context, term *recipes.Lease) error

// LeaderSelector is one participant in the election of a leader, and calls a function
// whenever it is elected. Create it with [New], enter the election with Start or Run.
type LeaderSelector struct {
	path      string // as given
	queue     *zkutil.Queue
	candidate *zkutil.Candidate
	order     *zkutil.Callbacks // of the error handler
	take      TakeLeadership
	handle    func(error) // errors; nil: they are logged
	backoff   zkutil.Retry
	grace     time.Duration

	mu      sync.Mutex // protects what is below
	auto    bool
	queued  bool          // an attempt is wanted or under way
	term    *zkutil.Entry // the latest; nil: none yet
	failure error         // what the campaign has given up for
	changed chan struct{} // closed and replaced when queued or failure changes
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
	s := &LeaderSelector{
		path:    path,
		order:   session.Callbacks(),
		take:    take,
		grace:   defaultGrace,
		changed: make(chan struct{}),
		queue: &zkutil.Queue{
			Session: session,
			Recipe:  "selector",
			Dir:     dir,
			Prefix:  "lock-",
			Markers: zkutil.Markers,
			Rule:    zkutil.Exclusive,
			Keep:    true,
		},
	}
	s.candidate = zkutil.NewCandidate(s.queue)
	for _, opt := range append([]Option{WithRequeueBackoff(recipes.RetryPolicy{})}, opts...) {
		if opt == nil {
			return failed(errors.New("nil option"))
		}
		if err := opt(s); err != nil {
			return failed(err)
		}
	}
	return s, nil
}

// Start enters the election and returns at once; without a server it goes on until
// there is one. It fails with ErrClosed after Close, or when it was called before.
//
// Without [WithAutoRequeue] the selector leaves the election after one term.
func (s *LeaderSelector) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.candidate.Start(s.campaign); err != nil {
		return &recipes.OpError{Op: "selector: start", Path: s.path, Err: err}
	}
	s.queued = true
	s.announce()
	return nil
}

// Run starts the selector, waits for ctx to end, and closes it: for errgroup and main.
// It returns nil once everything has stopped in order, ctx's end included; otherwise
// the error of Start or Close, ErrClosed if the client or the selector was closed
// meanwhile, or what the selector has given up for: a refusal of the server, such as
// zk.ErrNoAuth, or the last error of a function that has failed too often.
func (s *LeaderSelector) Run(ctx context.Context) error {
	if err := s.Start(); err != nil { //nolint:contextcheck // Close ends the campaign, not ctx
		return err
	}
	ended, cancel := s.candidate.While(ctx)
	defer cancel()
	gaveUp := s.await(ended, func() bool { return s.failure != nil }) == nil
	err := s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case gaveUp:
		err = errors.Join(s.failure, err)
	case ctx.Err() == nil:
		err = errors.Join(&recipes.OpError{Op: "selector: run", Path: s.path, Err: recipes.ErrClosed}, err)
	}
	return err
}

// AutoRequeue makes the selector stand again, at the tail, after each term: at once,
// or after a pause when the function has failed. It holds from now on, for a selector
// that has left the election as well.
func (s *LeaderSelector) AutoRequeue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = true
	if s.candidate.Running() == nil && !s.queued {
		s.queued, s.failure = true, nil
		s.announce()
	}
}

// Requeue makes a selector that has left the election stand again, at the tail, for one
// term. It reports false, and does nothing, while one is waiting or leading, before
// Start and after Close.
func (s *LeaderSelector) Requeue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.candidate.Running() != nil || s.queued {
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

// Leader returns who is first in the election, as the server knows it, or the zero
// Participant when nobody takes part. It needs no Start.
func (s *LeaderSelector) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := s.queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, &recipes.OpError{Op: "selector: leader", Path: s.path, Err: err}
	}
	return recipes.ParticipantOf(first), nil
}

// Participants returns those who take part, in the order in which they will lead, the
// leader first. It is a snapshot: those who leave while it is taken are left out.
func (s *LeaderSelector) Participants(ctx context.Context) ([]recipes.Participant, error) {
	queue, err := s.queue.Participants(ctx)
	if err != nil {
		return nil, &recipes.OpError{Op: "selector: participants", Path: s.path, Err: err}
	}
	return recipes.ParticipantsOf(queue), nil
}

// Close leaves the election. If the function is running, its term's context ends, the
// function returns, and then the znode goes, so that no successor begins while the work
// of this leader still runs. It returns nil once the znode is gone. After the grace of
// [WithStepDownGrace] it returns an error while the function is still running: the
// znode stays until that returns. Any other error says that the znode could not be
// deleted within the operation timeout; that goes on in the background.
//
// Called from inside the function, or any other callback of whatever recipe, Close asks for
// all that and returns nil at once. A goroutine that the function has started is not
// inside it: if the function waits for that to close the selector, both wait for the
// grace. Close is idempotent, and waits again when called again.
func (s *LeaderSelector) Close() error {
	s.candidate.Stop()
	if err := s.candidate.Wait(s.grace); err != nil {
		return &recipes.OpError{Op: "selector: close", Path: s.path, Err: err}
	}
	return nil
}
