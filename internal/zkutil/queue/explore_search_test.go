package queue

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// step is a step of a course. For contenders node is none, unless the step concerns two.
type step struct {
	name     string
	who, arg int // a session or a contender; a znode, a server's state, or a set of znodes
}

func (s step) String() string { return fmt.Sprintf("%s %d %d", s.name, s.who, s.arg) }

// steps returns the steps that may follow, and whether one of them is no fault.
func (w *world) steps() (steps []step, goesOn bool) {
	for s := range w.conns[:slices.Max(w.sessions)+1] {
		steps = append(steps, w.stepsOfSession(s)...)
	}
	for i := range w.sessions {
		steps = append(steps, w.stepsOfContender(i)...)
	}
	goesOn = slices.ContainsFunc(steps, func(s step) bool { return s.name != "expire" })
	if w.spent < w.most {
		for _, f := range w.faults {
			steps = append(steps, w.stepsOfFault(f)...)
		}
	}
	return steps, goesOn
}

func (w *world) stepsOfSession(s int) (steps []step) {
	c := &w.conns[s]
	add := func(isPossible bool, name string, arg int) {
		if isPossible && !c.isLost {
			steps = append(steps, step{name, s, arg})
		}
	}
	add(len(c.up) > 0, "execute", none)
	add(int(c.at) < len(w.log) && (len(c.up) > 0 || c.watched != 0), "apply", none) // whether anything else is behind makes no difference
	if len(c.down) > 0 && c.down[0].isEvent {
		c.down[0].nodes.each(func(i int) { add(true, "take", i) })
	} else {
		add(len(c.down) > 0, "take", none)
	}
	isProven := slices.ContainsFunc(c.down, func(m message) bool { return m.request.kind == prove && !m.isEvent })
	add(!c.isTrusted && !c.isExpired && !isProven, "expire", none)
	return steps
}

func (w *world) stepsOfContender(i int) (steps []step) {
	c := &w.contenders[i]
	for _, why := range w.wakeups(i) {
		steps = append(steps, step{"wake", i, int(why)})
	}
	switch {
	case c.phase == claiming:
		steps = append(steps, step{"claim", i, none})
	case c.phase == absent && (!w.isUnder(i) || w.contenders[i-1].phase == holding):
		steps = append(steps, step{"join", i, none})
	case c.phase == holding:
		steps = append(steps, step{"release", i, none})
	}
	if (c.phase == waiting || c.phase == holding) && !c.own.isSet && !c.own.isAsked {
		steps = append(steps, step{"watch", i, none})
	}
	return steps
}

func (w *world) stepsOfFault(f fault) (steps []step) {
	if f == remove {
		nodes := w.tree(int8(len(w.log)))
		for n := set(1); n <= nodes; n++ {
			if n&^nodes == 0 && n.count() <= 2 {
				steps = append(steps, step{string(f), none, int(n)})
			}
		}
		return steps
	}
	for s := range w.conns[:slices.Max(w.sessions)+1] {
		c := &w.conns[s]
		if f == distrust && c.isTrusted && !c.isLost {
			steps = append(steps, step{string(f), s, none})
		}
		for at := int(c.seen); f == reset && !c.isLost && at <= len(w.log); at++ {
			steps = append(steps, step{string(f), s, at})
		}
	}
	return steps
}

// isStuck reports whether a contender waits, in a state in which nothing more happens.
func (w *world) isStuck() bool {
	return slices.ContainsFunc(w.contenders[:len(w.sessions)], func(c contender) bool { return c.phase != done && c.phase != absent })
}

// apply returns the state after a step.
func (w *world) apply(s step) *world {
	w = w.clone()
	switch s.name {
	case "execute":
		w.execute(s.who)
	case "apply":
		w.applyNext(s.who)
	case "take":
		w.take(s.who, s.arg)
	case "expire":
		w.expire(s.who)
	case "join":
		c := &w.contenders[s.who]
		c.phase, c.epoch = listing, w.connOf(s.who).epoch
		w.send(s.who, create, s.who)
	case "wake":
		w.wake(s.who, wakeup(s.arg))
	case "claim":
		w.claim(s.who)
	case "release":
		w.lose(s.who)
	case "watch":
		w.watchOwn(s.who)
	default:
		w.spent++
		switch fault(s.name) {
		case reset:
			w.reset(s.who, int8(s.arg))
		case distrust:
			w.distrust(s.who)
		case remove:
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
		flags(c.position.isBehind, c.position.isFirst, c.isFirst, c.isDeleted)
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
	parents map[uint64]uint64 // by fingerprint
	wrong   string            // the violation; "" if none
	course  []step            // that leads to it
	grants  int               // in how many states a contender holds
}

// explore visits every state of a cast, and stops at the first violation.
func explore(c *cast) *search {
	root := start(c)
	s := &search{parents: map[uint64]uint64{root.fingerprint(): 0}}
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
	return s
}

// visit returns the states that follow one, as far as they are new.
func (s *search) visit(root, w *world) (found []*world) {
	from := w.fingerprint()
	steps, goesOn := w.steps()
	if !goesOn && w.isStuck() {
		s.wrong, s.course = "a contender waits for ever", s.courseTo(root, from)
		return nil
	}
	for _, st := range steps {
		next := w.apply(st)
		if next.wrong != "" { // also on the way to a known state, as the judge looks at the step
			s.wrong, s.course = next.wrong, append(s.courseTo(root, from), st)
			return nil
		}
		to := next.fingerprint()
		if _, isKnown := s.parents[to]; isKnown {
			continue
		}
		s.parents[to] = from
		if slices.ContainsFunc(next.contenders[:], func(c contender) bool { return c.phase == holding }) {
			s.grants++
		}
		found = append(found, next)
	}
	return found
}

// courseTo replays the way to a state.
func (s *search) courseTo(root *world, to uint64) (course []step) {
	var way []uint64
	for ; to != 0; to = s.parents[to] {
		way = append(way, to)
	}
	slices.Reverse(way)
	w := root
	for _, next := range way[1:] {
		steps, _ := w.steps()
		for _, st := range steps {
			if after := w.apply(st); after.fingerprint() == next {
				course = append(course, st)
				w = after
				break
			}
		}
	}
	return course
}

func (s *search) String() string {
	var lines []string
	for _, st := range s.course {
		lines = append(lines, st.String())
	}
	return s.wrong + "\n" + strings.Join(lines, "\n")
}
