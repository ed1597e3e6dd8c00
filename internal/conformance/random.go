package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Random returns the steps of a seed, with about the given number of requests: four
// sessions work on a small tree, so that they often collide. The steps are always the same
// for a seed, and a longer sequence begins with the shorter one.
func Random(seed uint64, requests int) []Step {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 0))}
	for _, name := range sessionNames {
		g.step("%c connect timeout=60s", name)
	}
	g.step("a create /r")
	for g.requests < requests {
		g.next()
	}
	return g.steps
}

// sessionNames are the sessions of random steps.
const sessionNames = "abcd"

// wipeEvery is the average number of steps after which the tree is cleared, so that
// directories stay small and sequence numbers restart.
const wipeEvery = 60

// generator generates random steps.
type generator struct {
	rnd      *rand.Rand
	steps    []Step
	requests int // the number of requests in steps
}

// step adds a step by its text.
func (g *generator) step(format string, args ...any) {
	step, err := ParseStep(fmt.Sprintf(format, args...))
	if err != nil {
		panic(err) // the text is the generator's own
	}
	g.steps = append(g.steps, step)
	g.requests++
	if step.Op == "pipeline" || step.Op == "cut" {
		g.requests += len(step.Parts) - 1
	}
}

// choice is a text with a weight.
type choice struct {
	weight int
	text   string
}

// pick returns the text of a random choice.
func (g *generator) pick(choices []choice) string {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := g.rnd.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.text
		}
	}
	return ""
}

// next adds a session's next step, mostly a single request.
func (g *generator) next() {
	name := sessionNames[g.rnd.IntN(len(sessionNames))]
	if g.rnd.IntN(wipeEvery) == 0 {
		g.step("%c wipe /r", name)
		return
	}
	switch kind := g.pick(kinds()); kind {
	case "multi":
		g.step("%c multi %s", name, g.several(g.part, 3))
	case "multiRead":
		g.step("%c multiRead %s", name, g.several(g.readPart, 4))
	case "pipeline":
		g.step("%c pipeline %s", name, g.several(g.ordered, 16))
	case "flush":
		g.step("%c pipeline %s", name, g.flush())
	case "cut":
		g.step("%c cut %s", name, g.flush())
		g.step("%c reconnect", name)
	case "again":
		g.step("%c close", name)
		g.step("%c connect timeout=60s", name)
	case "back":
		g.step("%c drop", name)
		for range g.rnd.IntN(6) {
			g.next()
		}
		g.step("%c reconnect", name)
	case "takeover":
		g.step("%c reconnect", name)
	case "damaged":
		g.step("%c %s truncate=%d", name, g.request(), 1+g.rnd.IntN(4))
		g.step("%c reconnect", name)
	case "null":
		g.null(name)
	case "refused":
		g.step("%c %s", name, g.pick([]choice{{1, "op code=42"}, {1, "auth nonsense=x"}, {1, "bytes hex=ffffffff"}}))
		g.step("%c reconnect", name)
	default:
		g.step("%c %s", name, g.request())
	}
}

// null adds a request with −1 in place of one of its lengths. It is part of no pipeline, because such
// requests are answered out of order.
func (g *generator) null(name byte) {
	which := 1 + g.rnd.IntN(6)
	switch g.pick([]choice{{6, ""}, {2, "multi"}, {1, "multiRead"}}) {
	case "multi":
		g.step("%c multi minus1=%d %s", name, which, g.several(g.part, 3))
	case "multiRead":
		g.step("%c multiRead minus1=%d %s", name, which, g.several(g.readPart, 4))
	default:
		request := g.request()
		if strings.HasPrefix(request, "addWatch") {
			which++ // because a real server never forgets a lasting watch on a null path
		}
		g.step("%c %s minus1=%d", name, request, which)
	}
	g.step("%c reconnect", name) // because an auth may be refused
}

// kinds returns the kinds of random steps.
func kinds() []choice {
	return []choice{
		{300, "request"},
		{100, "multi"},
		{30, "multiRead"},
		{500, "pipeline"},
		{200, "flush"},
		{20, "cut"},
		{8, "again"},
		{12, "back"},
		{3, "takeover"},
		{10, "damaged"},
		{30, "null"},
		{6, "refused"},
	}
}

// several returns up to n parts of a step.
func (g *generator) several(part func() string, n int) string {
	parts := make([]string, 1+g.rnd.IntN(n))
	for i := range parts {
		parts[i] = part()
	}
	return strings.Join(parts, "; ")
}

// request returns a random request.
func (g *generator) request() string {
	if g.rnd.IntN(2) == 0 {
		return g.write()
	}
	op := g.pick([]choice{
		{8, "exists"},
		{6, "getData"},
		{5, "getChildren"},
		{5, "getChildren2"},
		{3, "reads " + g.path() + " " + g.path()},
		{2, "getACL"},
		{3, "setACL"},
		{1, "sync"},
		{1, "addWatch " + g.path() + g.pick([]choice{{2, " persistent"}, {1, " recursive"}})},
		{2, "removeWatches " + g.path() + g.pick([]choice{{2, " any"}, {1, " data"}, {1, " child"}})},
		{1, "checkWatches " + g.path() + g.pick([]choice{{2, " any"}, {1, " data"}, {1, " child"}})},
		{1, "auth digest=" + g.pick([]choice{{3, "u:p"}, {1, "v:q"}})},
	})
	switch {
	case strings.Contains(op, " "): // complete
		return op
	case op == "setACL":
		return op + " " + g.path() + g.acl() + g.version()
	case op == "getACL" || op == "sync" || g.rnd.IntN(2) == 0:
		return op + " " + g.path()
	}
	return op + " " + g.path() + " watch"
}

// ordered returns a request that is answered in order, and whose effect is visible to later
// requests: auth doesn't queue, and a real server may check a write against the ACL from
// before a pending setACL.
func (g *generator) ordered() string {
	for {
		if request := g.request(); !strings.HasPrefix(request, "auth") && !strings.HasPrefix(request, "setACL") {
			return request
		}
	}
}

// part returns a request that is allowed in a transaction.
func (g *generator) part() string {
	if g.rnd.IntN(8) == 0 {
		return "check " + g.path() + g.version()
	}
	return g.write()
}

// readPart returns a request that is, with few exceptions, allowed in a multiRead.
func (g *generator) readPart() string {
	if g.rnd.IntN(20) == 0 {
		return g.pick([]choice{{1, "exists "}, {1, "getChildren2 "}, {1, "delete "}, {1, "check "}}) + g.path()
	}
	return g.pick([]choice{{2, "getData "}, {1, "getChildren "}}) + g.path() + g.watch()
}

// write returns a request that changes the tree.
func (g *generator) write() string {
	op := g.pick([]choice{{20, "create"}, {8, "create2"}, {2, "createContainer"}, {2, "createTTL"}, {9, "delete"}, {14, "setData"}})
	switch op {
	case "delete":
		return op + " " + g.path() + g.version()
	case "setData":
		return op + " " + g.path() + g.data() + g.version()
	}
	return op + " " + g.below() + g.data() + g.mode(op) + g.acl()
}
