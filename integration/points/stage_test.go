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
	alone      string        // the only operation that counts, if others race with it; "": all count
	brief      bool          // reads do not count: a hold may end before its znode is read
	briefIn    string        // a directory of such holds, while other reads are steps; "": none
	briefOwn   bool          // holds may end before their own znodes are read
	background bool          // what is left is deleted in the background

	slowTurn bool                          // the turn for the permits is passed on so slowly that they are read again
	dirs     []string                      // of the contenders, below the recipe's; nil: the recipe's
	free     func(*stage, *recipes.Client) // requires that a client gets everything at once; nil: the mutex
}

// stage is a single play of a scenario. It is a require.TestingT, for concurrent plays.
type stage struct {
	scenario

	world  *world
	peers  []*recipes.Client // of the worker; no fault touches them
	client *recipes.Client   // meets the fault
	proxy  *faultproxy.Proxy // in front of client
	fault  *fault            // nil: none
	base   string            // of the play; no other has it
	dir    string            // of the recipe: base, or below it
	ctx    context.Context   // ends with the patience for the whole play

	session int64
	passed  atomic.Bool  // the client began to pass on the turn for the permits
	closed  bool         // the scenario closed client
	counted atomic.Int64 // connections from this one on count

	mu       sync.Mutex // protects what is below
	steps    []point
	answers  map[string]int // by operation and path; forwarded answers
	failures []string
	left     bool
	expired  bool // the scenario's leftovers expired with the session, as promised
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

// run plays the scenario and checks its leftovers.
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
	// An answer lost by the fault does not count.
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

// beginAfterCut counts requests after the end of the first connection.
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

// isTimed reports whether a request is sent only if another one is slow.
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

// check has the invariants after every play, for any failure.
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

// empty requires that nothing is left. Background deletions of a scenario get time, but no more: before its end, a
// session removes nothing.
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

// takeAll requires that a client gets the lock, or all permits, at once, and releases it.
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

// pathsIn returns the contenders in a directory below the recipe's, at the server, in order of arrival. A missing
// directory has none.
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

// hasRead waits until the client gets the answer to a read of a znode, such as the awaited one.
func (s *stage) hasRead(path string) {
	s.eventually(func() bool { return s.reads(path) > 0 }, "an answer")
}

// watched waits until the client read the znode of its own lease, some milliseconds after the grant, so that the read
// always counts, or never.
func (s *stage) watched(lease *recipes.Lease) *recipes.Lease {
	s.hasRead(lease.Path())
	return lease
}

// waitsBehind waits until the client, the last in the queue, read the znode ahead and then its own.
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

// answersTo counts the answers to such requests of the client, on any path.
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
