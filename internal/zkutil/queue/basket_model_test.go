package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model of calls that join several queues, for the argument in Basket. Each step is one transaction, or the turn of a waiter.

// joining is how a call joins its queues.
type joining int

const (
	together  joining = iota // as a basket does
	keepsAll                 // a broken basket, which keeps the znodes behind the one that has to wait
	oneByOne                 // as Curator's multilock does
	modelKeys = 3
)

// modelCall is a call that acquires and releases the locks on keys once.
type modelCall struct {
	kind joining
	keys string // such as "ca": the queues in their order
}

// progress is how far a call has come.
type progress struct {
	held   int   // how many of the keys it holds
	joined int   // how many queues have a znode of the call
	phase  stage // what comes next
}

type stage byte

const (
	joins  stage = iota // the next queues
	leaves              // the queues behind held
	waits               // for its turn in the queue at held
	holds               // all
	isDone              // has released all
)

// modelState is the queues, each with the numbers of its calls in their order, and the progress of each call.
type modelState struct {
	queues [modelKeys]string
	calls  [3]progress
}

// isFirstIn reports whether call i is the first contender of a queue.
func (s modelState) isFirstIn(key byte, i int) bool {
	return strings.HasPrefix(s.queues[key-'a'], fmt.Sprint(i))
}

// joinModel adds call i to the queues of keys, and returns how many it may keep by the decision of the shipping code.
func (s *modelState) joinModel(i int, keys string) (firstBlocked int) {
	q := &Queue{Rule: Exclusive}
	var waiters []*waiter
	for _, key := range []byte(keys) {
		queue := &s.queues[key-'a']
		*queue += fmt.Sprint(i)
		var list []Contender
		for number := range *queue {
			c, _ := newContender(fmt.Sprintf("lock-%010d", number), []string{"lock-"})
			list = append(list, c)
		}
		waiters = append(waiters, &waiter{q: q, joined: list, self: list[len(list)-1]})
	}
	return firstToWait(waiters)
}

func (s *modelState) leaveModel(i int, keys string) {
	for _, key := range []byte(keys) {
		s.queues[key-'a'] = strings.ReplaceAll(s.queues[key-'a'], fmt.Sprint(i), "")
	}
}

// step returns the state after the next step of call i. ok is false if the call has to wait or is done.
func (s modelState) step(i int, c modelCall) (next modelState, ok bool) {
	p := &s.calls[i]
	switch p.phase {
	case joins:
		rest := c.keys[p.joined:]
		if c.kind == oneByOne {
			rest = rest[:1]
		}
		free := s.joinModel(i, rest)
		p.held, p.joined = p.held+free, p.joined+len(rest)
		switch {
		case p.held == len(c.keys):
			p.phase = holds
		case free == len(rest): // one by one
		case c.kind == together:
			p.phase = leaves
		default:
			p.phase = waits
		}
	case leaves:
		s.leaveModel(i, c.keys[p.held+1:])
		p.joined, p.phase = p.held+1, waits
	case waits:
		if !s.isFirstIn(c.keys[p.held], i) {
			return s, false
		}
		p.held++
		switch {
		case p.held == len(c.keys):
			p.phase = holds
		case p.held == p.joined:
			p.phase = joins
		}
	case holds:
		s.leaveModel(i, c.keys)
		p.phase = isDone
	default:
		return s, false
	}
	return s, true
}

// canDeadlock reports whether some order of steps leaves a call waiting forever. It tries all.
func canDeadlock(calls []modelCall) bool {
	seen := map[modelState]bool{}
	var explore func(s modelState) bool
	explore = func(s modelState) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		isStuck, isUnfinished := true, false
		for i, c := range calls {
			next, ok := s.step(i, c)
			if ok && explore(next) {
				return true
			}
			isStuck, isUnfinished = isStuck && !ok, isUnfinished || s.calls[i].phase != isDone
		}
		return isStuck && isUnfinished
	}
	return explore(modelState{})
}

// Calls with one order of the queues never wait for each other, whatever queues each needs, and also beside calls that join one queue after the
// other. Both halves of that are needed: without the common order they can, and if a call that waits kept its znodes in later queues.
func TestBasketsInOneOrder(t *testing.T) {
	ordered := []string{"a", "b", "c", "ab", "ac", "bc", "abc"}
	anyOrder := append(slices.Clone(ordered), "ba", "ca", "cb", "acb", "bac", "bca", "cab", "cba")
	for name, c := range map[string]struct {
		keys      []string
		kinds     [3]joining
		deadlocks int // of all combinations of keys
	}{
		"one order":                       {ordered, [3]joining{together, together, together}, 0},
		"beside calls that go one by one": {ordered, [3]joining{together, together, oneByOne}, 0},
		"beside two of them":              {ordered, [3]joining{together, oneByOne, oneByOne}, 0},
		"any order":                       {anyOrder, [3]joining{together, together, together}, 1848},
		"keeps all, beside one that goes one by one": {ordered, [3]joining{keepsAll, keepsAll, oneByOne}, 118},
	} {
		t.Run(name, func(t *testing.T) {
			deadlocks := 0
			for _, first := range c.keys {
				for _, second := range c.keys {
					for _, third := range c.keys {
						if canDeadlock([]modelCall{{c.kinds[0], first}, {c.kinds[1], second}, {c.kinds[2], third}}) {
							deadlocks++
						}
					}
				}
			}
			require.Equal(t, c.deadlocks, deadlocks, "of %d", len(c.keys)*len(c.keys)*len(c.keys))
		})
	}
}
