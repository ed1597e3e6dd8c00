package chaos

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// lockState is that of an owner-aware, re-entrant, fenced lock. Tokens are ranked, or the
// search explodes.
type lockState struct {
	holder int // rank of the holder's token, 0: free
	depth  int
	last   int // highest rank so far
}

type lockDeed int

const (
	lockAcquire lockDeed = iota
	lockReacquire
	lockRerelease
	lockRelease // or loss: the znode is deleted, at any depth
)

type lockInput struct {
	deed lockDeed
	rank int
}

// lockModel is after the models of Jepsen's tests of Hazelcast's FencedLock.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(lockInput)
		switch in.deed {
		case lockAcquire:
			return s.holder == 0 && in.rank == s.last+1, lockState{holder: in.rank, depth: 1, last: in.rank}
		case lockReacquire:
			return s.holder == in.rank && s.depth < 2, lockState{s.holder, s.depth + 1, s.last}
		case lockRerelease:
			return s.holder == in.rank && s.depth == 2, lockState{s.holder, 1, s.last}
		default:
			return s.holder == in.rank, lockState{last: s.last}
		}
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(lockInput)
		return fmt.Sprintf("%s %d", [...]string{"acquire", "reacquire", "rerelease", "release"}[in.deed], in.rank)
	},
}

// lockHistory is the history of one lock at the servers: acquisitions at the times of the processes, and deletions of
// znodes at the times of the logs.
func (h *History) lockHistory(holds []*Hold) (ops []porcupine.Operation) {
	add := func(hold *Hold, deed lockDeed, call, end int64) {
		ops = append(ops, porcupine.Operation{ClientId: hold.Proc, Input: lockInput{deed, hold.Rank}, Call: call, Return: max(call, end)})
	}
	for _, hold := range holds {
		add(hold, lockAcquire, h.called(hold), hold.Granted)
		if hold.Life == nil || hold.Life.Gone == 0 {
			continue // reported by Judge, or held to the end
		}
		gone := h.gone(hold)
		// Re-entries after an unnoticed deletion of the znode do not count.
		if n := len(hold.reacquired); n > 0 && n == len(hold.rereleased) && hold.rereleased[n-1] < gone-clockError {
			for i, at := range hold.reacquired {
				add(hold, lockReacquire, hold.Granted, at)
				add(hold, lockRerelease, at, hold.rereleased[i])
			}
		}
		add(hold, lockRelease, gone-clockError, gone+clockError)
	}
	return ops
}

// called is when an attempt began. Leaders do not say: when their znode was made.
func (h *History) called(hold *Hold) int64 {
	if hold.Called == 0 && hold.Life != nil {
		return min(hold.Granted, h.monotonic(hold.Life.Created))
	}
	return cmp.Or(hold.Called, hold.Granted)
}

type rowInput struct {
	write bool
	token int64
}

// rowAnswer is the row's answer, if its process lived to receive it.
type rowAnswer int

const (
	rowAccepted rowAnswer = iota
	rowRefused
	rowUnheard
)

// rowModel is a register that refuses the tokens of the past.
var rowModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		claimed, in, said := state.(int64), input.(rowInput), output.(rowAnswer)
		if in.write {
			return said == rowUnheard || (said == rowAccepted) == (in.token == claimed), claimed
		}
		return said == rowUnheard || (said == rowAccepted) == (in.token >= claimed), max(claimed, in.token)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}

// rowHistory is the history of one row.
func (h *History) rowHistory(path string) (ops []porcupine.Operation) {
	type key struct {
		by  string
		try int
	}
	open := make(map[key]Event)
	for _, e := range h.Events {
		if e.Path != path {
			continue
		}
		k := key{e.By, e.Try}
		switch e.What {
		case Claiming, Writing:
			open[k] = e
		case Claimed, Wrote, Refused:
			asked, said := open[k], rowAccepted
			if e.What == Refused {
				said = rowRefused
			}
			delete(open, k)
			ops = append(ops, porcupine.Operation{
				ClientId: e.Proc, Input: rowInput{asked.What == Writing, e.Token}, Output: said, Call: asked.At, Return: e.At,
			})
		default:
		}
	}
	for _, e := range open { // its process was killed; the row may still execute the write later
		ops = append(ops, porcupine.Operation{
			ClientId: e.Proc, Input: rowInput{e.What == Writing, e.Token}, Output: rowUnheard, Call: e.At, Return: math.MaxInt64,
		})
	}
	return ops
}

// linearTime bounds each check.
const linearTime = time.Minute

// Linearize checks each lock and each row, and returns by path what is not linearizable. An undecided check counts as
// not linearizable.
func Linearize(h *History) map[string][]string {
	violations := make(map[string][]string)
	for _, era := range h.eras() {
		era.linearize(violations)
	}
	return violations
}

func (h *History) linearize(violations map[string][]string) {
	for path, holds := range h.holds() {
		check := func(what string, model porcupine.Model, ops []porcupine.Operation) {
			if result := porcupine.CheckOperationsTimeout(model, ops, linearTime); result != porcupine.Ok {
				violations[path] = append(violations[path], fmt.Sprintf("%s: %d operations: %s", what, len(ops), result))
			}
		}
		if path != readWritePath && path != cohortPath && limits[path] == 0 { // several may have a znode of the others
			check("lock", lockModel, h.lockHistory(holds))
		}
		check("row", rowModel, h.rowHistory(path))
	}
}
