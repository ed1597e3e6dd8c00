package spread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Election is a candidate of this process in one election, a latch.LeaderLatch or a selector.LeaderSelector with WithPriority. Any other
// type needs a method String that names the election, with the same text in all processes, and another for each election.
type Election interface {
	ID() string
	HasLeadership() bool
	Participants(ctx context.Context) ([]recipes.Participant, error)
	TransferTo(ctx context.Context, id string) error
}

// entry is an election that was added.
type entry struct {
	Election

	name      string
	hash      string           // of the name
	calls     *callbacks.Order // of the candidate's methods
	isRunning atomic.Bool      // a method did not return yet

	// Used by run alone.
	ledAt   time.Time     // when this process, as the owner, was last seen to lead
	triedAt time.Time     // when the latest attempt to take over ended
	pause   time.Duration // after that attempt
	failure string        // the latest in the log
}

// Spread balances the leaders of many elections across the processes of a group. Create a Spread with [New], add the elections, and
// call Start.
type Spread struct {
	session *session.Session
	path    string // as passed by the user
	group   *group.Group
	scope   zkutil.Scope // of the candidates' methods
	members []*member    // used by run, and only read after its end

	mu        sync.Mutex // protects the fields below
	elections []*entry
	life      context.Context    //nolint:containedctx // from Start to Close; nil if not started
	end       context.CancelFunc // ends life
	stop      context.CancelFunc // ends run
	done      chan struct{}      // closed at the end of run
	isClosed  bool
}

const (
	period       = 500 * time.Millisecond // mean time between two checks, which send nothing
	maxPause     = 10 * time.Minute       // longest pause between two attempts to take over an election
	maxHandovers = 8                      // at once, in Drain
)

// Option configures a [Spread], in New alone.
type Option func(*config) error

// config has the values set by the options.
type config struct {
	member []group.Option // for this process in the group
}

// WithID sets the ID of this process; the default is the id of the client (see recipes.WithID). The ID must be unique in the group, must
// have no slash, and must be the ID of the process's candidates in all elections. The id of a client without recipes.WithID has a slash,
// and New refuses it.
func WithID(id string) Option {
	return func(cfg *config) error {
		cfg.member = append(cfg.member, group.WithID(id))
		return nil
	}
}

// New returns a Spread for the group of processes at path, an absolute path below the client's namespace. No election may use the same
// path. New sends nothing to the server.
func New(c *recipes.Client, path string, opts ...Option) (*Spread, error) {
	var (
		cfg config
		g   *group.Group
	)
	err := option.Apply(&cfg, opts)
	if err != nil {
		err = zkutil.Invalid(err)
	} else {
		g, err = group.New(c, path, cfg.member...)
	}
	if err == nil {
		var own *session.Session
		own, _, err = recipe.Attach(c, path)
		if err == nil && len(cfg.member) == 0 && g.ID() != string(own.ID()) {
			err = zkutil.Invalid(fmt.Errorf("the id of the client, %q, has a slash: set another with WithID", own.ID()))
		}
		if err == nil {
			return &Spread{session: own, path: path, group: g, scope: zkutil.NewScope()}, nil
		}
	}
	op := &recipes.OpError{Op: "spread: new", Path: path, Err: err}
	if inner, ok := zkutil.AsType[*recipes.OpError](err); ok {
		op.Err = inner.Err
	}
	return nil, op
}

// check fails for a zero value.
func (s *Spread) check(op string) error {
	if s.session == nil {
		return recipe.ZeroValue(op)
	}
	return nil
}

func (s *Spread) opError(op string, err error) error {
	return &recipes.OpError{Op: "spread: " + op, Path: s.path, Err: err}
}

// Add adds the candidate of this process in an election, before or after Start. The candidate's ID must be the ID of the Spread. Call
// remove before closing the candidate. The error is ErrInvalidArgument for a nil candidate, another ID, and an election that was
// added before. A panic in a method of the candidate is logged, and the Spread continues.
func (s *Spread) Add(e Election) (remove func(), err error) {
	if err := s.check("add"); err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(e); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, s.opError("add", zkutil.Invalid(errors.New("nil election")))
	}
	own := &entry{Election: e, name: fmt.Sprint(e), calls: s.session.CallbacksIn(s.scope)}
	own.hash = hash(own.name)
	if e.ID() != s.group.ID() {
		return nil, s.opError("add", zkutil.Invalid(fmt.Errorf("the candidate has the id %q, not %q", e.ID(), s.group.ID())))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.elections, func(other *entry) bool { return other.hash == own.hash }) {
		return nil, s.opError("add", zkutil.Invalid(fmt.Errorf("%s is already added", own.name)))
	}
	s.elections = append(s.elections, own)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.elections = slices.DeleteFunc(s.elections, func(other *entry) bool { return other == own })
	}, nil
}

// present returns the elections that were added and not removed.
func (s *Spread) present() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.elections)
}

// Start joins the group at the path, and begins to balance the leaders. The error is ErrAlreadyStarted or ErrClosed.
func (s *Spread) Start() error {
	if err := s.check("start"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return s.opError("start", recipes.ErrClosed)
	case s.life != nil:
		return s.opError("start", recipes.ErrAlreadyStarted)
	}
	life, end := context.WithCancel(s.session.Context())
	ctx, stop := context.WithCancel(life)
	done := make(chan struct{})
	if !s.session.Background(func(context.Context) { // ends with Drain or Close, or with the client
		defer close(done)
		defer stop()
		s.run(ctx)
	}) {
		end()
		return s.opError("start", recipes.ErrClosed)
	}
	s.life, s.end, s.stop, s.done = life, end, stop, done
	return nil
}

// Close stops the balancing and leaves the group. The elections continue. Close waits for a method of a candidate that still runs, for an
// operation timeout at most, and returns an error if the method is still running. Inside such a method, Close does not wait for it. Close is
// idempotent.
func (s *Spread) Close() (err error) {
	s.mu.Lock()
	s.isClosed = true
	end, done := s.end, s.done
	s.mu.Unlock()
	if end == nil {
		return nil
	}
	end()
	<-done
	limit := s.session.Config().OperationTimeout
	due := time.Now().Add(limit)
	for _, e := range s.present() {
		if !s.scope.IsOnStack() && !zkutil.Within(e.calls.Barrier(), time.Until(due)) {
			err = fmt.Errorf("a method of a candidate is still running after %v", limit)
		}
	}
	if left := s.group.Leave(); left != nil {
		err = zkutil.Both(err, errors.Unwrap(left))
	}
	if err != nil {
		return s.opError("close", err)
	}
	return nil
}

// call runs fn, which calls methods of a candidate, in another goroutine, because a method may hang, end its goroutine, or close the Spread
// or the client. call returns when fn returns or ctx ends. A panic becomes a *recipes.PanicError.
func (s *Spread) call(ctx context.Context, e *entry, fn func(ctx context.Context) error) error {
	done := make(chan error, 1)
	e.isRunning.Store(true)
	e.calls.Post(func() {
		err := errors.New("a method of the candidate ended its goroutine")
		defer func() {
			if value := recover(); value != nil {
				err = &recipes.PanicError{Value: value, Stack: zkutil.StackForLogs()}
			}
			e.isRunning.Store(false)
			done <- err
		}()
		if err = ctx.Err(); err == nil { // the Spread may be closed by now, perhaps in a method
			err = fn(ctx)
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return zkutil.EndOf(ctx)
	}
}

// callWithin is call with a limit.
func (s *Spread) callWithin(ctx context.Context, limit time.Duration, e *entry, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.call(ctx, e, fn)
}

// run follows the members, and takes over the elections that this process owns, one at a time.
func (s *Spread) run(ctx context.Context) {
	lists := s.group.Watch(ctx)
	tick := time.NewTimer(0)
	defer tick.Stop()
	var published string
	var voters []*member // of owner
	var owner map[string]string
	for {
		select {
		case list := <-lists:
			s.members = update(s.members, list, time.Now())
			continue
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(period/2 + rand.N(period)) // random, so that the processes do not act together
		}
		elections := s.present()
		if data := dataOf(elections); data != published && s.group.Join([]byte(data)) == nil { //nolint:contextcheck // a membership outlives the call
			published = data
		}
		if old := olderThan(2*s.session.Timeout(), s.members, time.Now()); !slices.Equal(old, voters) {
			voters, owner = old, owners(old)
		}
		elections = slices.DeleteFunc(elections, func(e *entry) bool { return owner[e.hash] != s.group.ID() || e.isRunning.Load() })
		if next := s.nextDue(ctx, elections); next != nil {
			s.takeOver(ctx, next)
		}
	}
}

// nextDue returns the election to take over: of those that this process does not lead, the one tried least recently. An election
// that this process led a moment ago is not due, because the process that took it over may know of a newer list of members.
func (s *Spread) nextDue(ctx context.Context, owned []*entry) (next *entry) {
	timeout := s.session.Timeout()
	for _, e := range owned {
		var isLeader bool
		err := s.callWithin(ctx, timeout/6, e, func(context.Context) error { isLeader = e.HasLeadership(); return nil })
		switch {
		case err != nil:
			s.logNew(ctx, e, err)
		case isLeader:
			e.ledAt, e.failure = time.Now(), ""
		case time.Since(e.ledAt) < timeout || time.Since(e.triedAt) < e.pause:
		case next == nil || e.triedAt.Before(next.triedAt):
			next = e
		}
	}
	return next
}

// takeOver makes the own candidate the leader, and returns once it leads, or after a session timeout. The pause after an attempt begins
// with a session timeout, and doubles from one attempt to the next.
func (s *Spread) takeOver(ctx context.Context, e *entry) {
	timeout := s.session.Timeout()
	if e.pause = min(2*e.pause, maxPause); time.Since(e.triedAt) > 5*e.pause {
		e.pause = timeout
	}
	members := s.members
	if err := s.callWithin(ctx, timeout, e, func(ctx context.Context) error { return lead(ctx, e, members) }); err != nil {
		s.logNew(ctx, e, err)
	}
	e.triedAt = time.Now()
}

// lead makes the own candidate the leader, and returns once it leads. It leaves the election alone while the leader is not a member, or
// a candidate has a higher priority.
func lead(ctx context.Context, e *entry, members []*member) error {
	participants, err := e.Participants(ctx)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(participants, func(p recipes.Participant) bool { return p.ID == e.ID() })
	if own < 0 || slices.ContainsFunc(participants, func(p recipes.Participant) bool {
		return p.Priority > participants[own].Priority || p.Leader && find(members, p.ID) == nil
	}) {
		return nil
	}
	if err = ctx.Err(); err == nil {
		err = e.TransferTo(ctx, e.ID())
	}
	for err == nil && ctx.Err() == nil && !e.HasLeadership() {
		zkutil.Pause(ctx, period/10)
	}
	return err
}

// logNew logs a failure of an election, unless it is the same as the latest.
func (s *Spread) logNew(ctx context.Context, e *entry, err error) {
	if text := fmt.Sprint(err); text != e.failure && ctx.Err() == nil { // Sprint survives a panic in the user's code
		e.failure = text
		s.session.Log(slog.LevelWarn, "can't take over leadership; retrying", "path", s.path, "id", s.group.ID(), "election", e.name, "err", err)
	}
}

// Drain hands over all elections that this process leads, before a shutdown. From then until Close, this process takes no election over.
// The leaders step down in order, up to eight at once, and ctx bounds the wait for them. Each election is taken over by a process of the
// Spread that does not drain. Of the candidates of the highest priority, that is the one that owns the election from now on, or else the
// oldest process.
//
// The error is ErrNotStarted, ErrClosed, or the failure of an election that this process still leads: ErrNoCandidate if no other process can
// take over, ErrNotSteered, the error of ctx, or one of the server.
func (s *Spread) Drain(ctx context.Context) error {
	s.mu.Lock()
	life, isClosed := s.life, s.isClosed
	s.mu.Unlock()
	switch {
	case isClosed:
		return s.opError("drain", recipes.ErrClosed)
	case life == nil:
		return s.opError("drain", recipes.ErrNotStarted)
	}
	s.stop()
	<-s.done
	s.mu.Lock()
	err := error(recipes.ErrClosed)
	if !s.isClosed { // otherwise Close may already leave the group
		err = errors.Unwrap(s.group.Join([]byte(dataOf(nil)))) //nolint:contextcheck // a membership outlives the call
	}
	s.mu.Unlock()
	if err != nil {
		return s.opError("drain", err)
	}
	ctx, cancel := s.session.WhileOpen(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)() //nolint:contextcheck // ends with both

	others := slices.DeleteFunc(s.latestMembers(ctx), func(m *member) bool { return m.id == s.group.ID() })
	owner := owners(olderThan(2*s.session.Timeout(), others, time.Now()))
	elections := s.present()
	failures := make([]error, len(elections))
	slots := make(chan struct{}, maxHandovers)
	var handovers sync.WaitGroup
	for i, e := range elections {
		slots <- struct{}{}
		handovers.Go(func() { // ends with its handover; joined below
			defer func() { <-slots }()
			if err := s.call(ctx, e, func(ctx context.Context) error { return handOver(ctx, e, others, owner[e.hash]) }); err != nil {
				failures[i] = fmt.Errorf("%s: %w", e.name, err)
			}
		})
	}
	handovers.Wait()
	if err := cmp.Or(failures...); err != nil {
		return s.opError("drain", err)
	}
	return nil
}

// latestMembers returns the members for Drain, because others may have joined since the end of run. While the servers are silent, these are the
// members that run saw last.
func (s *Spread) latestMembers(ctx context.Context) []*member {
	ctx, cancel := context.WithTimeout(ctx, s.session.Timeout()/6)
	defer cancel()
	list, err := s.group.Members(ctx)
	if err != nil {
		return slices.Clone(s.members)
	}
	return update(s.members, list, time.Now())
}

// handOver makes another process the leader, if this one leads.
func handOver(ctx context.Context, e *entry, others []*member, owner string) error {
	if !e.HasLeadership() {
		return nil
	}
	participants, err := e.Participants(ctx)
	if err != nil {
		return err
	}
	err = fmt.Errorf("%w: no other process in the Spread", recipes.ErrNoCandidate)
	for _, id := range successors(others, e.hash, owner, participants) {
		if ctx.Err() != nil {
			return zkutil.EndOf(ctx)
		}
		if err = e.TransferTo(ctx, id); err == nil {
			return nil
		}
	}
	return err
}
