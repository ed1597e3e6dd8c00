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
	"strconv"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Election is a candidate of this process in one election: a latch.LeaderLatch or a selector.LeaderSelector with WithPriority.
type Election interface {
	ID() string
	HasLeadership() bool
	Participants(ctx context.Context) ([]recipes.Participant, error)
	TransferTo(ctx context.Context, id string) error
}

// entry is an election that was added. Its pointer tells it apart, because a user's Election need not be comparable.
type entry struct{ Election }

// call calls fn, which calls a method of the user's, in another goroutine, because the method may end its goroutine, or close the Spread
// or the client. call waits until fn has returned or ctx has ended. A panic becomes a *recipes.PanicError.
func call[T any](ctx context.Context, s *Spread, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	s.calls.Post(func() {
		if ctx.Err() != nil { // the Spread was closed meanwhile, perhaps in a method that was called before
			return
		}
		r := result{err: errors.New("a method of the candidate has ended its goroutine")}
		defer func() {
			if value := recover(); value != nil {
				r.err = &recipes.PanicError{Value: value, Stack: zkutil.StackWithoutScopes()}
			}
			done <- r
		}()
		r.value, r.err = fn()
	})
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = zkutil.EndOf(ctx)
	}
	return r.value, r.err
}

// Spread balances the leaders of many elections across the processes of a group. Create a Spread with [New], add the elections, and
// call Start.
type Spread struct {
	session *session.Session
	path    string // as passed by the user
	group   *group.Group
	scope   zkutil.Scope       // of the candidates' methods
	calls   *session.Callbacks // of these methods

	mu        sync.Mutex // protects the fields below
	elections []*entry
	cancel    context.CancelFunc // nil: not started
	done      chan struct{}      // closed when the goroutine has ended
	isClosed  bool
}

const (
	period          = 500 * time.Millisecond // mean time between two checks
	maxPause        = time.Minute            // longest pause after a failed handover
	maxLoad         = 1 << 20                // of a member; a sum of more could overflow
	transferTimeout = 30 * time.Second       // bounds a transfer, including the return of the leader's work
)

// New returns a Spread for the group of processes at path, an absolute path below the client's namespace. No election may use the same
// path. id identifies this process: it must be unique in the group, and must be the ID of the process's candidates in all elections.
// New sends nothing to the server.
func New(c *recipes.Client, path, id string) (*Spread, error) {
	g, err := group.New(c, path, group.WithID(id))
	if err == nil {
		var own *session.Session
		if own, _, err = recipe.Attach(c, path); err == nil {
			scope := zkutil.NewScope()
			return &Spread{session: own, path: path, group: g, scope: scope, calls: own.CallbacksIn(scope)}, nil
		}
	}
	op := &recipes.OpError{Op: "spread: new", Path: path, Err: err}
	if inner, ok := zkutil.AsType[*recipes.OpError](err); ok {
		op.Err = inner.Err
	}
	return nil, op
}

func (s *Spread) opError(op string, err error) error {
	return &recipes.OpError{Op: "spread: " + op, Path: s.path, Err: err}
}

// Add adds the candidate of this process in an election, before or after Start. The candidate's ID must be the ID of the Spread. Call
// remove before closing the candidate. The error is ErrInvalidArgument for a nil candidate, another ID, and a candidate that was
// added before. A panic in a method of the candidate is logged, and the Spread goes on.
func (s *Spread) Add(e Election) (remove func(), err error) {
	switch {
	case isNil(e):
		return nil, s.opError("add", zkutil.Invalid(errors.New("nil election")))
	case e.ID() != s.group.ID():
		return nil, s.opError("add", zkutil.Invalid(fmt.Errorf("the candidate has the id %q, not %q", e.ID(), s.group.ID())))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.elections {
		if isSame(other.Election, e) {
			return nil, s.opError("add", zkutil.Invalid(errors.New("the candidate was added before")))
		}
	}
	own := &entry{e}
	s.elections = append(s.elections, own)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.elections = slices.DeleteFunc(s.elections, func(other *entry) bool { return other == own })
	}, nil
}

// isNil reports whether an election is nil or a nil pointer.
func isNil(e Election) bool {
	v := reflect.ValueOf(e)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// isSame compares two elections as far as their types allow: a user's Election need not be comparable.
func isSame(a, b Election) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Start joins the group at the path, and begins to balance the leaders. The error is ErrAlreadyStarted or ErrClosed.
func (s *Spread) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return s.opError("start", recipes.ErrClosed)
	case s.cancel != nil:
		return s.opError("start", recipes.ErrAlreadyStarted)
	}
	if err := s.group.Join([]byte("0")); err != nil {
		return s.opError("start", errors.Unwrap(err))
	}
	ctx, cancel := context.WithCancel(s.session.Context())
	done := make(chan struct{})
	if !s.session.Background(func(context.Context) { // ends with Close, or with the client
		defer close(done)
		defer cancel()
		s.run(ctx)
	}) {
		cancel()
		return s.opError("start", recipes.ErrClosed)
	}
	s.cancel, s.done = cancel, done
	return nil
}

// Close stops the balancing and leaves the group. The elections go on. Close waits for a method of a candidate that still runs, for an
// operation timeout at most, and returns an error if the method runs on. Inside such a method, Close does not wait for it. Close is
// idempotent.
func (s *Spread) Close() error {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.isClosed = true
	s.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	<-done
	var err error
	if limit := s.session.Config().OperationTimeout; !s.scope.IsOnStack() && !zkutil.Within(s.calls.Barrier(), limit) {
		err = fmt.Errorf("a method of a candidate is still running after %v", limit)
	}
	if left := s.group.Leave(); left != nil {
		err = zkutil.Both(err, errors.Unwrap(left))
	}
	if err != nil {
		return s.opError("close", err)
	}
	return nil
}

// run checks the elections of this process regularly, and hands leadership over while the process leads more than its share.
func (s *Spread) run(ctx context.Context) {
	loads := s.group.Watch(ctx)
	members, published := map[string]int{}, 0
	pause, due := period, time.Time{}
	var failure, ledFailure string
	for {
		timer := time.NewTimer(period/2 + rand.N(period)) // random, so that the processes do not act together
		select {
		case all, isOpen := <-loads:
			if isOpen {
				members, pause, due = loadsOf(all), period, time.Time{}
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		led, err := s.led(ctx)
		if ctx.Err() != nil { // a candidate may have closed the Spread, which is leaving the group
			return
		}
		s.logNew(ctx, &ledFailure, err)
		if len(led) != published && s.group.Join([]byte(strconv.Itoa(len(led)))) == nil { //nolint:contextcheck // a membership outlives the call
			published = len(led)
		}
		if time.Now().Before(due) {
			continue
		}
		isDone, err := s.handOver(ctx, led, members)
		s.logNew(ctx, &failure, err)
		if pause = min(2*pause, maxPause); isDone {
			pause = period
		}
		due = time.Now().Add(pause)
	}
}

// logNew logs a failure unless it is the same as the latest of its kind.
func (s *Spread) logNew(ctx context.Context, latest *string, err error) {
	before := *latest
	if *latest = ""; err != nil {
		*latest = fmt.Sprint(err) // which survives a panic in the user's code
	}
	if *latest != before && err != nil && ctx.Err() == nil {
		s.session.Log(slog.LevelWarn, "leadership not handed over, trying again", "path", s.path, "id", s.group.ID(), "err", err)
	}
}

// loadsOf returns the number of elections led by each member. Members with other data are not counted.
func loadsOf(all []group.Member) map[string]int {
	loads := make(map[string]int, len(all))
	for _, m := range all {
		if n, err := strconv.Atoi(string(m.Data)); err == nil && n >= 0 && n <= maxLoad {
			loads[m.ID] = n
		}
	}
	return loads
}

// led returns the elections that this process leads. One that panics does not count, and is the error.
func (s *Spread) led(ctx context.Context) (led []*entry, err error) {
	s.mu.Lock()
	all := slices.Clone(s.elections)
	s.mu.Unlock()
	for _, e := range all {
		isLeader, failed := call(ctx, s, func() (bool, error) { return e.HasLeadership(), nil })
		if isLeader {
			led = append(led, e)
		}
		err = cmp.Or(err, failed)
	}
	return led, err
}

// handOver hands one election over if this process leads more than its share. isDone reports whether
// the process leads no more than its share, or has handed one election over.
func (s *Spread) handOver(ctx context.Context, led []*entry, loads map[string]int) (isDone bool, err error) {
	total := len(led)
	for id, n := range loads {
		if id != s.group.ID() {
			total += n
		}
	}
	share := shareOf(total, len(loads))
	if len(led) <= share {
		return true, nil
	}
	rand.Shuffle(len(led), func(i, j int) { led[i], led[j] = led[j], led[i] })
	for _, e := range led {
		target, err := s.targetOf(ctx, e, loads, share)
		if err != nil {
			return false, err
		}
		if target == "" {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, transferTimeout)
		defer cancel()
		if _, err := call(ctx, s, func() (struct{}, error) { return struct{}{}, e.TransferTo(bounded, target) }); err != nil {
			return false, err
		}
		loads[target]++ // until the target publishes its own number
		return true, nil
	}
	return false, nil
}

// shareOf returns the greatest number of elections that a process leads once the leaders are balanced.
func shareOf(total, processes int) int {
	if processes == 0 {
		return total
	}
	return (total + processes - 1) / processes
}

// targetOf returns the candidate with the fewest leaderships among the candidates below their share, or "" if all have theirs. Ties are
// broken at random, because several processes above their share may choose at the same time.
func (s *Spread) targetOf(ctx context.Context, e *entry, loads map[string]int, share int) (string, error) {
	participants, err := call(ctx, s, func() ([]recipes.Participant, error) { return e.Participants(ctx) })
	if err != nil {
		return "", err
	}
	rand.Shuffle(len(participants), func(i, j int) { participants[i], participants[j] = participants[j], participants[i] })
	target, least := "", share
	for _, p := range participants {
		if load, isMember := loads[p.ID]; isMember && p.ID != s.group.ID() && load < least {
			target, least = p.ID, load
		}
	}
	return target, nil
}
