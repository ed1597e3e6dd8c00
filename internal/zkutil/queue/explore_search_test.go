package queue

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// event is a step of a course.
type event struct {
	name     string // with the verb behind the subject, as in the scenarios
	who, arg int    // a session or a contender; a znode, a server's state, or a set of znodes
}

const (
	joinsTail = "joins"
	goesOn    = "goes on"
	claims    = "claims its turn"
	releases  = "releases"
	watches   = "watches its znode"
	executes  = "'s server executes a request"
	applies   = "'s server applies a transaction"
	takes     = "takes an answer"
	takesEnd  = "takes the event of"
	expires   = "expires"
	connects  = "connects to a server with transactions:"
	isDoubted = "has no proof any longer"
	removes   = "a third party deletes"
)

// String returns the event in words. Contenders are A, B and so on, sessions 0, 1 and so on.
func (e event) String() string {
	session, contender := fmt.Sprintf("session %d", e.who), letter(e.who)
	switch e.name {
	case joinsTail, goesOn, claims, releases, watches:
		return contender + " " + e.name
	case takes, expires, isDoubted:
		return session + " " + e.name
	case executes, applies:
		return session + e.name
	case takesEnd:
		return session + " " + e.name + " " + letter(e.arg)
	case connects:
		return fmt.Sprintf("%s %s %d", session, e.name, e.arg)
	default:
		return e.name + " " + set(e.arg).String()
	}
}

func letter(contender int) string { return string(rune('A' + contender)) }

// steps returns the steps that may follow, and whether one of them is no fault.
func (w *world) steps() (steps []event, isGoing bool) {
	for s := range w.conns[:slices.Max(w.sessions)+1] {
		steps = append(steps, w.stepsOfSession(s)...)
	}
	for i := range w.sessions {
		steps = append(steps, w.stepsOfContender(i)...)
	}
	isGoing = slices.ContainsFunc(steps, func(s event) bool { return s.name != expires })
	if w.spent < w.most {
		for _, f := range w.faults {
			steps = append(steps, w.stepsOfFault(f)...)
		}
	}
	return steps, isGoing
}

func (w *world) stepsOfSession(s int) (steps []event) {
	c := &w.conns[s]
	add := func(isPossible bool, name string, arg int) {
		if isPossible && !c.isLost {
			steps = append(steps, event{name, s, arg})
		}
	}
	add(len(c.up) > 0, executes, none)
	add(int(c.at) < len(w.log) && (len(c.up) > 0 || c.watched != 0), applies, none) // whether anything else is behind makes no difference
	if len(c.down) > 0 && c.down[0].isEvent {
		c.down[0].nodes.each(func(i int) { add(true, takesEnd, i) })
	} else {
		add(len(c.down) > 0, takes, none)
	}
	isProven := slices.ContainsFunc(c.down, func(m message) bool { return m.request.kind == prove && !m.isEvent })
	add(!c.isTrusted && !c.isExpired && !isProven, expires, none)
	return steps
}

func (w *world) stepsOfContender(i int) (steps []event) {
	c := &w.contenders[i]
	switch {
	case c.isAwake, c.phase == waiting && !c.own.isAsked && w.sight(i).next() != stepWait:
		steps = append(steps, event{goesOn, i, none})
	case c.phase == claiming:
		steps = append(steps, event{claims, i, none})
	case c.phase == absent && (!w.isUnder(i) || w.contenders[i-1].phase == holding):
		steps = append(steps, event{joinsTail, i, none})
	case c.phase == holding:
		steps = append(steps, event{releases, i, none})
	}
	if (c.phase == waiting || c.phase == holding) && !c.own.isSet && !c.own.isAsked && !c.isAwake {
		steps = append(steps, event{watches, i, none})
	}
	return steps
}

func (w *world) stepsOfFault(f fault) (steps []event) {
	if f == remove {
		nodes := w.tree(int8(len(w.log)))
		for n := set(1); n <= nodes; n++ {
			if n&^nodes == 0 && n.count() <= 2 {
				steps = append(steps, event{removes, none, int(n)})
			}
		}
		return steps
	}
	for s := range w.conns[:slices.Max(w.sessions)+1] {
		c := &w.conns[s]
		if f == distrust && c.isTrusted && !c.isLost {
			steps = append(steps, event{isDoubted, s, none})
		}
		for at := int(c.seen); f == reset && !c.isLost && at <= len(w.log); at++ {
			steps = append(steps, event{connects, s, at})
		}
	}
	return steps
}

// The violations that no single event shows.
const (
	stuck     = "a contender waits for ever"         // see isStuck
	neverEnds = "a course without faults never ends" // see courses
)

// isStuck reports whether a contender waits, in a state in which nothing more happens.
func (w *world) isStuck() bool {
	return slices.ContainsFunc(w.contenders[:len(w.sessions)], func(c contender) bool { return c.phase != done && c.phase != absent })
}

// apply returns the state after a step.
func (w *world) apply(s event) *world {
	w = w.clone()
	switch s.name {
	case executes:
		w.execute(s.who)
	case applies:
		w.applyNext(s.who)
	case takes, takesEnd:
		w.take(s.who, s.arg)
	case expires:
		w.expire(s.who)
	case joinsTail:
		c := &w.contenders[s.who]
		c.phase, c.epoch, c.isJoining = listing, w.connOf(s.who).epoch, w.isUnder(s.who)
		w.send(s.who, create, s.who)
	case goesOn:
		w.goOn(s.who)
	case claims:
		w.claim(s.who)
	case releases:
		w.lose(s.who)
	case watches:
		w.watchOwn(s.who)
	default:
		w.spent++
		switch s.name {
		case connects:
			w.reset(s.who, int8(s.arg))
		case isDoubted:
			w.distrust(s.who)
		case removes:
			w.commit(txn{nodes: set(s.arg)})
		}
	}
	return w
}

// fingerprint covers everything, with numbers below 64 in a byte each.
func (w *world) fingerprint() uint64 {
	b := make([]byte, 0, 256)
	ints := func(all ...int8) {
		for _, n := range all {
			b = append(b, byte(n))
		}
	}
	flags := func(all ...bool) {
		n := byte(0)
		for _, f := range all {
			n <<= 1
			if f {
				n |= 1
			}
		}
		b = append(b, n)
	}
	ints(int8(w.spent), int8(len(w.log)))
	for _, t := range w.log {
		flags(t.isCreate)
		ints(int8(t.nodes))
	}
	for s := range w.conns {
		c := &w.conns[s]
		ints(c.epoch, c.at, c.seen, int8(len(c.up)), int8(len(c.down)), int8(c.watched), int8(c.standing), int8(c.firsts))
		flags(c.isTrusted, c.isExpired, c.isLost)
		for _, r := range c.up {
			ints(int8(r.kind), r.by, r.node)
		}
		for _, m := range c.down {
			ints(int8(m.request.kind), m.request.by, m.request.node, int8(m.nodes), m.at)
			flags(m.isEvent, m.isFound, m.isEnded)
		}
	}
	for i := range w.contenders {
		c := &w.contenders[i]
		ints(int8(c.phase), c.epoch, int8(c.position.turn), c.blocker)
		flags(c.position.isBehind, c.position.isFirst, c.isFirst, c.isDeleted, c.isListed, c.isMissing, c.isUnread, c.isAwake)
		flags(c.isJoining)
		for _, o := range []watch{c.own, c.blockers} {
			flags(o.isAsked, o.isSet, o.isGone, o.isLost, o.wasFirst)
		}
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// search is an exploration: breadth first, the states with the fewest faults first.
type search struct {
	parents map[uint64]parent // by fingerprint
	courses courses
	wrong   string // the violation; "" if none
	course  *course
	grants  int // in how many states a contender holds
}

// parent is where a state was found first.
type parent struct {
	fingerprint uint64
	number      uint32 // of the state itself, in the order in which they were found
}

// courses are all steps that are no fault, from state to state.
type courses struct {
	from []uint32 // the visited states
	ends []int    // where the steps of each end in to
	to   []uint32
}

// isAcyclic reports whether every course without a fault ends, from any of n states. If not, endless is a state of one that does not.
func (c *courses) isAcyclic(n int) (isAcyclic bool, endless uint32) {
	ways := make([]uint32, n)                      // into each state
	starts, ends := make([]int, n), make([]int, n) // of the steps of each state
	for _, to := range c.to {
		ways[to]++
	}
	start := 0
	for i, from := range c.from {
		starts[from], ends[from] = start, c.ends[i]
		start = c.ends[i]
	}
	var open []uint32 // all ways into them come from states that were left before
	for i, n := range ways {
		if n == 0 {
			open = append(open, uint32(i))
		}
	}
	left := n
	for ; len(open) > 0; left-- {
		from := open[len(open)-1]
		open = open[:len(open)-1]
		for _, to := range c.to[starts[from]:ends[from]] {
			if ways[to]--; ways[to] == 0 {
				open = append(open, to)
			}
		}
	}
	return left == 0, uint32(max(0, slices.IndexFunc(ways, func(n uint32) bool { return n > 0 })))
}

// explore visits every state of a cast, and stops at the first violation.
func explore(c *cast) *search {
	root := start(c)
	s := &search{parents: map[uint64]parent{root.fingerprint(): {}}}
	levels := make([][]*world, c.most+1)
	levels[0] = []*world{root}
	for n := range levels {
		for i := 0; i < len(levels[n]); i++ {
			w := levels[n][i]
			levels[n][i] = nil
			for _, next := range s.visit(root, w) {
				levels[next.spent] = append(levels[next.spent], next)
			}
			if s.wrong != "" {
				return s
			}
		}
	}
	if isAcyclic, endless := s.courses.isAcyclic(len(s.parents)); !isAcyclic {
		for fingerprint, p := range s.parents {
			if p.number == endless {
				s.wrong, s.course = neverEnds, &course{c, s.courseTo(root, fingerprint)}
			}
		}
	}
	return s
}

// visit returns the states that follow one, as far as they are new.
func (s *search) visit(root, w *world) (found []*world) {
	from := w.fingerprint()
	steps, isGoing := w.steps()
	if !isGoing && w.isStuck() {
		s.wrong, s.course = stuck, &course{root.cast, s.courseTo(root, from)}
		return nil
	}
	for _, st := range steps {
		next := w.apply(st)
		if next.wrong != "" { // also on the way to a known state, as the judge looks at the step
			s.wrong, s.course = next.wrong, &course{root.cast, append(s.courseTo(root, from), st)}
			return nil
		}
		to := next.fingerprint()
		p, isKnown := s.parents[to]
		if !isKnown {
			p = parent{from, uint32(len(s.parents))}
			s.parents[to] = p
		}
		if next.spent == w.spent {
			s.courses.to = append(s.courses.to, p.number)
		}
		if isKnown {
			continue
		}
		if slices.ContainsFunc(next.contenders[:], func(c contender) bool { return c.phase == holding }) {
			s.grants++
		}
		found = append(found, next)
	}
	s.courses.from, s.courses.ends = append(s.courses.from, s.parents[from].number), append(s.courses.ends, len(s.courses.to))
	return found
}

// courseTo replays the way to a state.
func (s *search) courseTo(root *world, to uint64) (events []event) {
	var way []uint64
	for ; to != 0; to = s.parents[to].fingerprint {
		way = append(way, to)
	}
	slices.Reverse(way)
	w := root
	for _, next := range way[1:] {
		steps, _ := w.steps()
		for _, st := range steps {
			if after := w.apply(st); after.fingerprint() == next {
				events = append(events, st)
				w = after
				break
			}
		}
	}
	return events
}

// isFault reports whether the event counts as a fault.
func (e event) isFault() bool { return e.name == connects || e.name == isDoubted || e.name == removes }

// walk takes random steps from the start of a cast to an end. One step of ten may be a fault. It returns the violation, if any.
func walk(c *cast, random *rand.Rand) (wrong string, taken *course) {
	w, taken := start(c), &course{cast: c}
	for w.wrong == "" {
		steps, isGoing := w.steps()
		switch {
		case !isGoing && w.isStuck():
			return stuck, taken
		case len(steps) == 0:
			return "", taken
		case isGoing && random.IntN(10) > 0:
			steps = slices.DeleteFunc(steps, event.isFault)
		}
		next := steps[random.IntN(len(steps))]
		w, taken.events = w.apply(next), append(taken.events, next)
	}
	return w.wrong, taken
}

// drawCast returns up to four contenders of up to three sessions, and up to eight faults.
func drawCast(random *rand.Rand) *cast {
	c := &cast{rule: Exclusive, faults: []fault{reset, distrust, remove}, most: random.IntN(9), isLate: random.IntN(2) == 0, isSlow: random.IntN(2) == 0}
	kinds := "wwwt"
	switch random.IntN(5) {
	case 0, 1:
		c.rule, kinds = ReadWrite, "wwrrrtu"
	case 2:
		c.permits, kinds = 1+random.IntN(3), "t"
		c.rule = UpTo(c.permits)
	}
	for i := range 2 + random.IntN(3) {
		kind, session := kinds[random.IntN(len(kinds))], random.IntN(3)
		if kind == 'u' {
			if i == 0 || c.kinds[i-1] != 'w' {
				kind = 'r'
			} else {
				session = c.sessions[i-1]
			}
		}
		c.kinds, c.sessions = c.kinds+string(kind), append(c.sessions, session)
	}
	if !strings.Contains(c.kinds, "u") && random.IntN(2) == 0 {
		c.joined = len(c.kinds)
	}
	return c
}
