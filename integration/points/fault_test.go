package points_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// kind is how a request fails.
type kind int

const (
	replyLost        kind = iota // the server executes the request, and the connection is cut in place of the answer
	requestDropped               // the server never sees the request, and the connection is cut
	connectionKilled             // the connection is cut during the request or the answer, with an open outcome
	kinds
)

func (k kind) String() string {
	return [...]string{"reply lost", "request dropped", "connection killed"}[k]
}

// point is a request of a scenario: the n-th with this operation.
type point struct {
	op  string
	nth int
	on  string // its path, for the reader
}

func (p point) String() string { return fmt.Sprintf("%s#%d %s", p.op, p.nth, p.on) }

// fault strikes once.
type fault struct {
	point
	kind

	delay time.Duration // of a kill, after the arrival of the request at the proxy

	rules    []*faultproxy.Rule
	seen     atomic.Int64
	met      atomic.Bool   // the request arrived
	answered atomic.Bool   // and its answer, when the connection was killed
	struck   chan struct{} // closed after the connection is cut
}

// longestDelay is several times what a server takes to answer.
const longestDelay = 32 * time.Millisecond

func newFault(p point, k kind, random *rand.Rand) *fault {
	// Short and long delays are equally likely, in any unit.
	return &fault{point: p, kind: k, delay: longestDelay >> random.IntN(10), struck: make(chan struct{})}
}

func (f *fault) String() string { return fmt.Sprintf("%v at %v", f.kind, f.point) }

// arm makes the fault wait for its request, among those that count.
func (f *fault) arm(proxy *faultproxy.Proxy, counts faultproxy.Match) {
	match := func(r faultproxy.Request) bool {
		hit := counts(r) && r.Op == f.op && f.seen.Add(1) == int64(f.nth)
		if hit {
			f.met.Store(true)
		}
		return hit
	}
	switch f.kind {
	case replyLost:
		f.rules = append(f.rules, proxy.DropReply(match, 1))
	case requestDropped:
		f.rules = append(f.rules, proxy.DropRequest(match, 1))
	default:
		f.kill(proxy, match)
	}
}

// kill cuts the connection a moment after the request arrives.
func (f *fault) kill(proxy *faultproxy.Proxy, match faultproxy.Match) {
	var xid, conn atomic.Int64
	f.rules = append(f.rules,
		proxy.BeforeReply(faultproxy.Op(f.op), func(r faultproxy.Request, _ faultproxy.Reply) {
			if int64(r.Xid) == xid.Load() && int64(r.Conn) == conn.Load() {
				f.answered.Store(true)
			}
		}),
		proxy.OnRequest(func(r faultproxy.Request) {
			if !match(r) {
				return
			}
			xid.Store(int64(r.Xid))
			conn.Store(int64(r.Conn))
			time.AfterFunc(f.delay, func() { // settle waits for it
				proxy.Cut()
				close(f.struck)
			})
		}))
}

// disarm ends a fault that has met nothing.
func (f *fault) disarm() {
	for _, rule := range f.rules {
		rule.Remove()
	}
}

// isStep reports whether a request belongs to a recipe: all but heartbeats, pings and handshakes do.
func isStep(r faultproxy.Request) bool {
	return faultproxy.Any()(r) && (r.Op != "multi" || faultproxy.MultiOf("delete")(r))
}

// settle waits for the end of a fault whose request arrived, and reports whether it struck.
func (f *fault) settle() bool {
	if !f.met.Load() {
		return false
	}
	struck := (<-chan struct{})(f.struck)
	if f.kind != connectionKilled {
		struck = f.rules[0].Done()
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-struck:
		return true
	case <-limit.C:
		return false
	}
}

var unique = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// shorten makes paths of different plays look the same.
func shorten(path, dir string) string {
	path = unique.ReplaceAllString(path, "*")
	if rest, inside := strings.CutPrefix(path, dir); inside {
		return "…" + rest
	}
	return path
}
