package election

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// course is an election in which candidates come and leave, and act in any order. A candidate looks at the queue when it joins, and when the
// contender that toAsk calls its blocker leaves or answers.
type course struct {
	*testing.T
	random     *rand.Rand
	q          *queue.Queue
	contenders []queue.Contender
	toLook     []string          // the contenders that have to look
	blockers   map[string]string // of the contenders that wait for one
	requests   map[string]string // to the contenders that were asked to yield: who asked
	numbers    int               // how many znodes there were
	changes    int               // how often the leader yielded
}

func (c *course) indexOf(name string) int {
	return slices.IndexFunc(c.contenders, func(other queue.Contender) bool { return other.Name == name })
}

// join adds a contender at the tail. A negative priority means none.
func (c *course) join(priority int) {
	prefix := "latch-"
	if priority >= 0 {
		prefix = queue.SteeredPrefix(priority, prefix)
	}
	c.numbers++
	name := fmt.Sprintf("_c_%036d-%s%010d", c.numbers, prefix, c.numbers)
	c.contenders = append(c.contenders, queue.Contender{Name: name})
	if priority >= 0 {
		c.toLook = append(c.toLook, name)
	}
}

// leave removes a contender.
func (c *course) leave(name string) {
	at := c.indexOf(name)
	c.contenders = slices.Delete(c.contenders, at, at+1)
	c.toLook = slices.DeleteFunc(c.toLook, func(other string) bool { return other == name })
	delete(c.blockers, name)
	delete(c.requests, name)
	c.wake(name)
}

// wake makes the contenders look that have a blocker.
func (c *course) wake(blocker string) {
	for _, other := range c.contenders {
		if c.blockers[other.Name] == blocker {
			delete(c.blockers, other.Name)
			c.toLook = append(c.toLook, other.Name)
		}
	}
}

// best returns the index of the first contender of the highest priority, 0 if none has a priority.
func (c *course) best() (best int) {
	highest := -1
	for i, other := range c.contenders {
		if priority, isSteered := other.Priority(); isSteered && priority > highest {
			best, highest = i, priority
		}
	}
	return best
}

// look has a contender ask others. Only the best one asks, for a latch only those directly ahead of a contender with a priority, and the leader
// only if no other is in between.
func (c *course) look(name string) {
	own, best := c.indexOf(name), c.best()
	asked, blocker := toAsk(c.q, c.contenders, own)
	require.True(c, len(asked) == 0 || own == best, "%v: %d asks", c.contenders, own)
	for _, i := range asked {
		priority, isSteered := c.contenders[i].Priority()
		highest, _ := c.contenders[best].Priority()
		_, mayBeWritten := c.contenders[i+1].Priority()
		require.True(c, isSteered && priority < highest, "%v: %d asks %d", c.contenders, own, i)
		require.True(c, mayBeWritten || c.q.Recipe == "selector", "%v: %d asks %d", c.contenders, own, i)
		require.True(c, i > 0 || own == 1, "%v: %d asks the leader", c.contenders, own)
		c.requests[c.contenders[i].Name] = name
	}
	if blocker >= 0 {
		c.blockers[name] = c.contenders[blocker].Name
	}
}

// answer has an asked contender yield, so that it joins again at the tail, unless the one that asked left.
func (c *course) answer(name string) {
	asker := c.requests[name]
	delete(c.requests, name)
	own := c.indexOf(name)
	if c.indexOf(asker) < own {
		c.wake(name)
		return
	}
	if own == 0 {
		c.changes++
	}
	priority, _ := c.contenders[own].Priority()
	c.leave(name)
	c.join(priority)
}

// act has one of the contenders do what is due, and reports whether anything was due.
func (c *course) act() bool {
	asked := slices.Sorted(maps.Keys(c.requests))
	if len(c.toLook)+len(asked) == 0 {
		return false
	}
	if i := c.random.IntN(len(c.toLook) + len(asked)); i < len(c.toLook) {
		name := c.toLook[i]
		c.toLook = slices.Delete(c.toLook, i, i+1)
		c.look(name)
	} else {
		c.answer(asked[i-len(c.toLook)])
	}
	return true
}

// rest lets the contenders act until nothing is due. Then the best candidate is first, unless those ahead of it lead first in any case: contenders
// without a priority, and candidates ahead of such a contender. For a selector, the leader is the only such candidate.
func (c *course) rest() {
	for steps := 0; c.act(); steps++ {
		require.Less(c, steps, 1000, "%v", c.contenders)
	}
	best := c.best()
	for i, other := range c.contenders[:best] {
		_, isSteered := other.Priority()
		require.False(c, isSteered && (i == best-1 || i > 0 && c.q.Recipe == "selector"), "%v: %d is ahead of %d", c.contenders, i, best)
	}
}

// Whatever order candidates join, leave, look and yield in, the best one leads in the end. If an election is at rest before an arrival or an end,
// the leader yields once at most.
func TestRandomElections(t *testing.T) {
	random := rand.New(rand.NewPCG(49, 0))
	for i := range testkit.Shorter(2_000, 500) {
		c := &course{T: t, random: random, q: &queue.Queue{Recipe: []string{"latch", "selector"}[i%2]}, blockers: map[string]string{}, requests: map[string]string{}}
		unsteered, isHasty := random.IntN(3), random.IntN(2) == 0
		for range 20 {
			if len(c.contenders) == 0 || random.IntN(5) < 3 {
				c.join(random.IntN(4+unsteered) - unsteered)
			} else {
				c.leave(c.contenders[random.IntN(len(c.contenders))].Name)
			}
			if isHasty {
				for range random.IntN(6) {
					c.act()
				}
				continue
			}
			before := c.changes
			c.rest()
			require.LessOrEqual(t, c.changes, before+1, "%v", c.contenders)
		}
		c.rest()
	}
}
