package points_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// scenario is a recipe's steps.
type scenario struct {
	part string // of the library
	name string
	play func(s *stage)

	timeout    time.Duration // of the session; 0: sessionTimeout
	beats      bool          // heartbeats are steps too
	alone      string        // the one operation that is a step, where others race with it; "": all are
	brief      bool          // reads are no steps: a hold may be over before its znode is read
	briefIn    string        // a directory of such holds, while other reads are steps; "": none
	briefOwn   bool          // holds may end before their own znodes are read
	background bool          // what is left is deleted in the background

	slowTurn bool                          // the turn for the permits is passed on so slowly that they are looked at again
	dirs     []string                      // of the contenders, below that of the recipe; nil: that itself
	free     func(*stage, *recipes.Client) // checks that a client gets all there is at once; nil: the mutex
}

// stage is where a scenario is played once. It is a require.TestingT of its own, for plays run beside each other.
type stage struct {
	scenario

	world  *world
	peers  []*recipes.Client // of the worker; no fault touches them
	client *recipes.Client   // the one that meets the fault
	proxy  *faultproxy.Proxy // in front of client
	fault  *fault            // nil: none
	base   string            // of the play; no other has it
	dir    string            // of the recipe: base, or below it
	ctx    context.Context   // ends with the patience for the whole play

	session int64
	passed  atomic.Bool  // the client has begun to pass the turn for the permits on
	closed  bool         // the scenario has closed client
	counted atomic.Int64 // connections from this one on count

	mu       sync.Mutex // protects what is below
	steps    []point
	answers  map[string]int // by operation and path; those that were forwarded
	failures []string
	left     bool
	expired  bool // what the scenario left went with the session, as promised
}

func (s *stage) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

// FailNow ends the play, whose goroutine it is called on.
func (s *stage) FailNow() { runtime.Goexit() }

// never is the number of a connection that is never made.
const never = math.MaxInt64

// run plays the scenario and checks what it has left.
func (s *stage) run() {
	ctx, cancel := context.WithTimeout(context.Background(), stuck/2)
	defer cancel()
	s.ctx, s.answers = ctx, map[string]int{}
	s.counted.Store(never)
	proxy, err := faultproxy.Start(s.world.server)
	require.NoError(s, err)
	defer proxy.Close()
	s.proxy = proxy
	proxy.Record(true)
	proxy.OnRequest(s.note)
	if s.fault != nil {
		s.fault.arm(proxy, s.counts)
	}
	// After the fault: an answer that it has lost is none.
	proxy.BeforeReply(faultproxy.Any(), func(r faultproxy.Request, _ faultproxy.Reply) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers[r.Op+" "+r.Path]++
	})
	timeout := s.timeout
	if timeout == 0 {
		timeout = sessionTimeout
	}
	s.client, err = recipes.Connect(ctx, []string{proxy.Addr()}, recipes.WithSessionTimeout(timeout))
	require.NoError(s, err)
	defer s.client.Close()
	s.session = s.client.Conn().SessionID()
	s.base = s.world.directory()
	s.dir = s.base
	s.play(s)
	s.end()
	s.check()
}

// begin has requests count from now on: they are steps, and the fault may strike.
func (s *stage) begin() { s.counted.Store(1) }

// beginAfterCut has requests count once the first connection is gone.
func (s *stage) beginAfterCut() { s.counted.Store(2) }

// end is called once the steps are done.
func (s *stage) end() {
	s.counted.Store(never)
	if s.fault != nil {
		s.fault.settle()
	}
}

func (s *stage) counts(r faultproxy.Request) bool {
	isOne := isStep(r) && !s.isTimed(r) || s.beats && r.Op == "multi"
	return isOne && (s.alone == "" || s.alone == r.Op) && int64(r.Conn) >= s.counted.Load()
}

// isTimed reports whether a request comes only if another one has taken long.
func (s *stage) isTimed(r faultproxy.Request) bool {
	switch r.Op {
	case "getData":
		return s.brief || s.briefOwn && strings.HasPrefix(path.Base(r.Path), "_c_") || s.briefIn != "" && strings.HasPrefix(r.Path, path.Join(s.dir, s.briefIn)+"/")
	case "getChildren2":
		return s.passed.Load() && !s.slowTurn && path.Base(r.Path) == taken
	default:
		return false
	}
}

// note writes down which steps there are.
func (s *stage) note(r faultproxy.Request) {
	if r.Op == "delete" && path.Base(path.Dir(r.Path)) == turns {
		s.passed.Store(true)
	}
	if !s.counts(r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nth := 1
	for _, p := range s.steps {
		if p.op == r.Op {
			nth++
		}
	}
	s.steps = append(s.steps, point{r.Op, nth, shorten(r.Path, s.base)})
}

// check is what has to hold after every play, whatever has failed in it.
func (s *stage) check() {
	s.empty()
	s.takeAll(s.peers[0])
	if !s.closed {
		same := s.client.Conn().SessionID() == s.session
		require.True(s, same, "the session has changed, so it may have taken znodes along")
		s.takeAll(s.client)
		require.NoError(s, s.client.Close())
	}
	s.eventually(func() bool { return s.proxy.Live() == 0 }, "a socket is open after Close")
	require.Empty(s, s.children())
}

// empty checks that nothing is left. A scenario whose deletions go on in the background gets the time for them, but no
// more: a session that has not ended has removed nothing.
func (s *stage) empty() {
	limit := time.Duration(0)
	switch {
	case s.closed:
		limit = s.timeout + patience/2 // a session that could not be closed expires
	case s.background:
		limit = patience
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	for {
		left := s.children()
		if len(left) == 0 {
			return
		}
		s.expired = s.closed
		select {
		case <-ctx.Done():
			s.left = true
			require.Empty(s, left, "left in ZooKeeper")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// takeAll checks that a client gets the lock at once, or all permits, and gives it back.
func (s *stage) takeAll(client *recipes.Client) {
	if s.free != nil {
		s.free(s, client)
		return
	}
	lease, err := s.mutex(client).TryAcquire(s.ctx)
	require.NoError(s, err, "somebody is in the way")
	require.NoError(s, lease.Release())
}

// children lists the contenders of all directories.
func (s *stage) children() (all []string) {
	if s.dirs == nil {
		return s.paths()
	}
	for _, dir := range s.dirs {
		all = append(all, s.pathsIn(dir)...)
	}
	return all
}

// paths are those of the contenders in the directory of the recipe.
func (s *stage) paths() []string { return s.pathsIn("") }

// pathsIn are those of the contenders in a directory below that of the recipe, as the server has it, in the order in
// which they came. A missing directory has none.
func (s *stage) pathsIn(below string) []string {
	dir := path.Join(s.dir, below)
	names, _, err := s.world.admin.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	require.NoError(s, err)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "last" }) // the record of package once
	number := func(name string) string { return name[len(name)-10:] }
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for i, name := range names {
		names[i] = path.Join(dir, name)
	}
	return names
}

// eventually is testkit.Eventually for a stage, which is no testing.TB, until the play is given up.
func (s *stage) eventually(condition func() bool, what string) {
	for !condition() {
		select {
		case <-s.ctx.Done():
			require.Fail(s, "has not happened: "+what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// happens waits for a channel.
func (s *stage) happens(done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-s.ctx.Done():
		require.Fail(s, "has not happened: "+what)
	}
}

// hasRead waits until the client was sent the answer to a read of a znode, such as the one that it waits for.
func (s *stage) hasRead(path string) {
	s.eventually(func() bool { return s.reads(path) > 0 }, "an answer")
}

// watched waits until the client has read the znode of a lease of its own, which it does some milliseconds after the
// grant: so that the read is a step, or none.
func (s *stage) watched(lease *recipes.Lease) *recipes.Lease {
	s.hasRead(lease.Path())
	return lease
}

// waitsBehind waits until the client, which is the last of the queue, has read the one ahead and then its own znode.
func (s *stage) waitsBehind(blocker string) {
	s.hasRead(blocker)
	paths := s.paths()
	s.hasRead(paths[len(paths)-1])
}

// reads is how often the client was answered about a znode.
func (s *stage) reads(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers["getData "+path]
}

// answersTo is how often the client was answered such a request, on whatever path.
func (s *stage) answersTo(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for request, times := range s.answers {
		if name, _, _ := strings.Cut(request, " "); name == op {
			n += times
		}
	}
	return n
}

func (s *stage) mutex(client *recipes.Client, opts ...mutex.Option) *mutex.InterProcessMutex {
	m, err := mutex.New(client, s.dir, opts...)
	require.NoError(s, err)
	return m
}

// exists makes the directory, and has had a child in it.
func (s *stage) exists() { s.takeAll(s.peers[0]) }
