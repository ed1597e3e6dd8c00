package recipes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// troubledCall is a call whose requests meet faults. set prepares the servers, through a client without faults. The call gives back what it
// takes, and leaves the servers as it found them, so that it can be repeated.
type troubledCall struct {
	set  func(b *bubble.Bubble, other *recipes.Client)
	call func(ctx context.Context, c *recipes.Client) error
}

// acquireAndRelease is the call of a lock.
func acquireAndRelease(locks func(c *recipes.Client) acquirer) func(ctx context.Context, c *recipes.Client) error {
	return func(ctx context.Context, c *recipes.Client) error {
		held, err := locks(c)(ctx)
		for _, h := range held {
			err = errors.Join(err, h.Release())
		}
		return err
	}
}

// downgrade acquires the write lock, and the read lock under it.
func downgrade(ctx context.Context, c *recipes.Client) error {
	l := made(rwlock.New(c, "/a"))
	writing, err := l.WriteLock().Acquire(ctx)
	if err != nil {
		return err
	}
	reading, err := l.ReadLock().Acquire(writing.Context())
	if err == nil {
		err = reading.Release()
	}
	return errors.Join(err, writing.Release())
}

// callsOfElections are calls of a client that is no candidate, in an election with three candidates.
func callsOfElections() map[string]troubledCall {
	start := func(b *bubble.Bubble, l *latch.LeaderLatch) {
		require.NoError(b, l.Start())
		b.Cleanup(func() { require.NoError(b, l.Close()) })
		bubble.Pass(bubble.Moment)
	}
	candidates := func(b *bubble.Bubble, other *recipes.Client) {
		for _, id := range []string{"1", "2", "3"} {
			start(b, made(latch.New(other, "/election", latch.WithID(id), latch.WithPriority(0))))
		}
	}
	rivals := func(b *bubble.Bubble, other *recipes.Client) {
		start(b, made(latch.New(other, "/election", latch.WithID("1"), latch.WithPriority(5))))
		start(b, made(latch.New(other, "/election", latch.WithID("2"), latch.WithPriority(0))))
		start(b, made(latch.New(other, "/election", latch.WithID("3"), latch.WithPriority(5))))
	}
	election := func(c *recipes.Client) *latch.LeaderLatch { return made(latch.New(c, "/election")) }
	return map[string]troubledCall{
		"leader": {set: candidates, call: func(ctx context.Context, c *recipes.Client) error {
			first, err := election(c).Leader(ctx)
			if err == nil && first.Path == "" {
				err = errors.New("no leader")
			}
			return err
		}},
		"participants": {set: candidates, call: func(ctx context.Context, c *recipes.Client) error {
			all, err := election(c).Participants(ctx)
			if err == nil && len(all) != 3 {
				err = fmt.Errorf("%d participants", len(all))
			}
			return err
		}},
		"observation": {set: candidates, call: func(ctx context.Context, c *recipes.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if first := <-election(c).Observe(ctx); first.Path == "" {
				return errors.New("no leader")
			}
			return nil
		}},
		"leadership": {call: func(ctx context.Context, c *recipes.Client) error {
			l := made(latch.New(c, "/lead"))
			if err := l.Start(); err != nil {
				return err
			}
			_, err := l.Await(ctx)
			return errors.Join(err, l.Close())
		}},
		"transfer": {set: rivals, call: func(ctx context.Context, c *recipes.Client) error {
			return election(c).TransferTo(ctx, "2")
		}},
	}
}

// callsOfGroups are calls of a member.
func callsOfGroups() map[string]troubledCall {
	return map[string]troubledCall{
		"membership": {call: func(ctx context.Context, c *recipes.Client) error {
			g := made(group.New(c, "/group", group.WithID("a")))
			if err := g.Join([]byte("data")); err != nil {
				return err
			}
			err := g.Await(ctx)
			if err == nil {
				err = g.Join([]byte("other data"))
			}
			if err == nil {
				err = g.Await(ctx)
			}
			if err == nil {
				_, err = g.Members(ctx)
			}
			return errors.Join(err, g.Leave())
		}},
		"watched members": {call: func(ctx context.Context, c *recipes.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if members := <-made(group.New(c, "/group", group.WithID("a"))).Watch(ctx); len(members) > 0 {
				return fmt.Errorf("%d members", len(members))
			}
			return nil
		}},
		"drain": {
			set: func(b *bubble.Bubble, other *recipes.Client) {
				s := made(spread.New(other, "/spread", spread.WithID("other")))
				made(s.Add(made(latch.New(other, "/work", latch.WithID("other"), latch.WithPriority(0)))))
				require.NoError(b, s.Start())
				b.Cleanup(func() { require.NoError(b, s.Close()) })
				bubble.Pass(bubble.Moment)
			},
			call: func(ctx context.Context, c *recipes.Client) error {
				s := made(spread.New(c, "/spread", spread.WithID("own")))
				made(s.Add(made(latch.New(c, "/work", latch.WithID("own"), latch.WithPriority(0)))))
				if err := s.Start(); err != nil {
					return err
				}
				bubble.Pause(5 * time.Second)
				return errors.Join(s.Drain(ctx), s.Close())
			},
		},
	}
}

// troubledCalls are calls of all recipes.
func troubledCalls() map[string]troubledCall {
	seeded := func(b *bubble.Bubble, _ *recipes.Client) {
		b.Srv.Put("/tree/lock/lock-0000000001", []byte("a"))
		b.Srv.Put("/tree/permits/locks/lock-0000000001", []byte("b"))
		b.Srv.Put("/tree/permits/leases/lease-0000000001", []byte("a"))
	}
	calls := callsOfElections()
	maps.Copy(calls, callsOfGroups())
	maps.Copy(calls, map[string]troubledCall{
		"downgrade": {call: downgrade},
		"shared limit": {call: acquireAndRelease(func(c *recipes.Client) acquirer {
			return several(2, made(semaphore.New(c, "/a", 3, semaphore.WithSharedLimit("/limit"))).AcquireN)
		})},
		"set the limit": {call: func(ctx context.Context, c *recipes.Client) error {
			return semaphore.SetSharedLimit(ctx, c, "/limit", 3)
		}},
		"occurrence": {call: func(ctx context.Context, c *recipes.Client) error {
			o := made(once.New(c, "/once"))
			err := o.Do(ctx, once.At(time.Now()), func(context.Context, *recipes.Lease) error { return nil })
			if err != nil {
				return err
			}
			if _, err = o.Last(ctx); err != nil {
				return err
			}
			return o.Forget(ctx)
		}},
		"skipped occurrence": {
			set: func(b *bubble.Bubble, other *recipes.Client) {
				release, done := make(chan struct{}), make(chan error, 1)
				go func() { // ends with the test
					done <- made(once.New(other, "/once")).Do(b.Context(), once.At(time.Now()), func(context.Context, *recipes.Lease) error {
						<-release
						return nil
					})
				}()
				b.Cleanup(func() {
					close(release)
					require.NoError(b, <-done)
				})
				bubble.Pass(time.Second)
			},
			call: func(ctx context.Context, c *recipes.Client) error {
				err := made(once.New(c, "/once", once.WithSkip())).Do(ctx, once.At(time.Now()), func(context.Context, *recipes.Lease) error { return nil })
				if errors.Is(err, once.ErrRunning) {
					return nil
				}
				return cmp.Or(err, errors.New("it is running"))
			},
		},
		"revocation": {
			set: func(b *bubble.Bubble, other *recipes.Client) {
				b.Srv.Seed(zktest.Znode{Path: "/lock/_c_00000000-0000-0000-0000-000000000000-lock-0000000000", Data: []byte("a"), Session: other.Conn().SessionID()})
			},
			call: func(ctx context.Context, c *recipes.Client) error {
				return revoke.New(c).AttemptRevoke(ctx, "/lock/_c_00000000-0000-0000-0000-000000000000-lock-0000000000")
			},
		},
		"walk": {set: seeded, call: func(ctx context.Context, c *recipes.Client) (err error) {
			n := 0
			for _, failure := range inspect.Walk(ctx, c, "/tree") {
				err = errors.Join(err, failure)
				n++
			}
			if err == nil && n != 2 {
				err = fmt.Errorf("%d queues", n)
			}
			return err
		}},
	})
	for name, lock := range kindsOfLocks() {
		calls[name] = troubledCall{call: acquireAndRelease(lock)}
		calls["contended "+name] = contendedCall(name, lock)
	}
	return calls
}

// contendedCall is a call for a lock that another client holds, which ends in vain.
func contendedCall(name string, lock func(c *recipes.Client) acquirer) troubledCall {
	return troubledCall{
		set: func(b *bubble.Bubble, other *recipes.Client) {
			held, err := blocker(name, other)(b.Context())
			require.NoError(b, err)
			b.Cleanup(func() { b.Release(held...) })
		},
		call: func(ctx context.Context, c *recipes.Client) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			held, err := lock(c)(ctx)
			if errors.Is(err, recipes.ErrNotAcquired) {
				return nil
			}
			for _, h := range held {
				err = errors.Join(err, h.Release())
			}
			return cmp.Or(err, errors.New("another client holds it"))
		},
	}
}

// refusedRequests returns the requests of each call whose refusals are errors of the call, in their order. The client does without the others,
// or repeats them. Missing are calls whose order depends on other goroutines.
func refusedRequests() map[string]string {
	const (
		lock    = "create2 createContainer create2"
		permits = "getChildren2 create2 createContainer createContainer createContainer create2 getChildren2 multi createContainer multi"
	)
	return map[string]string{
		"mutex": lock, "mutex, try": lock, "cohort": lock, "multilock": "", "multilock, try": "",
		"read lock": "getChildren2 " + lock, "write lock": "getChildren2 " + lock,
		"downgrade": "getChildren2 " + lock + " create getChildren2 getData getChildren2",
		"permit":    permits, "permit mutex": permits, "permits": permits, "permits, try": permits,
		"shared limit":  "getChildren2 create2 createContainer createContainer createContainer create2 getData create getData getChildren2 multi createContainer multi",
		"set the limit": "setData create",
		"occurrence":    "getData create createContainer create getData create2 getData multi getData create2 getData multi",
		"leader":        "getChildren2", "participants": "getChildren2", "observation": "",
		"watched members": "", "skipped occurrence": "getData create2 getData getChildren2",
		"revocation": "setData",
	}
}

// Each request of each call may be refused or lost, or its answer. After a loss the call succeeds all the same. A refusal is the error of the
// call, unless the client does without the request. No znode, watch or reserved byte is left in either case, and the same call succeeds afterwards.
func TestTroubleAtEachRequest(t *testing.T) {
	troubles := map[string]zktest.Fault{
		"refused":      {Refusal: zktest.RefuseNoAuth},
		"not served":   {Refusal: zktest.RefuseTimeout},
		"request lost": {Lost: zktest.RequestLost},
		"reply lost":   {Lost: zktest.ReplyLost},
	}
	isLock := kindsOfLocks()
	for name, test := range troubledCalls() {
		for trouble, fault := range troubles {
			lock, isContended := strings.CutPrefix(name, "contended ")
			isShort := trouble == "refused" || trouble == "reply lost" && isLock[name] == nil
			if isContended {
				isShort = trouble == "refused" && slices.Contains([]string{"mutex", "read lock", "permits", "multilock"}, lock)
			}
			if testing.Short() && !isShort {
				continue
			}
			t.Run(name+", "+trouble, func(t *testing.T) {
				refused := meetEachTrouble(t, test, fault)
				if want, isOrdered := refusedRequests()[name]; isOrdered && trouble == "refused" {
					require.Equal(t, want, strings.Join(refused, " "))
				}
			})
		}
	}
}

// meetEachTrouble lets each request of a call meet a fault, and returns those whose faults are errors of the call.
func meetEachTrouble(t *testing.T, test troubledCall, fault zktest.Fault) (refused []string) {
	t.Helper()
	for n, isReached := 0, true; isReached; n++ {
		bubble.Run(t, func(b *bubble.Bubble) {
			var hit zktest.Request
			var err error
			if hit, isReached, err = meetTrouble(b, test, n, fault); err != nil {
				refused = append(refused, hit.Op.String())
			}
		})
	}
	return refused
}

// meetTrouble makes a call whose n-th request meets a fault. isReached is false for a call with fewer requests.
func meetTrouble(b *bubble.Bubble, test troubledCall, n int, fault zktest.Fault) (hit zktest.Request, isReached bool, err error) {
	b.Helper()
	if test.set != nil {
		test.set(b, b.Client())
	}
	client := b.Troubled()
	session, count := client.Conn().SessionID(), 0
	var mu sync.Mutex // a request may follow the end of the call
	var first zktest.Request
	remove := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session != session || slices.Contains([]zktest.Op{zktest.OpPing, zktest.OpConnect, zktest.OpSetWatches, zktest.OpClose}, r.Op) {
			return zktest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if count++; count != n+1 {
			return zktest.Fault{}
		}
		first = r
		return fault
	})
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	err = test.call(ctx, client)
	remove()
	mu.Lock()
	hit, isReached = first, count > n
	mu.Unlock()
	if fault.Refusal != 0 && err != nil {
		require.ErrorIs(b, err, zk.ErrNoAuth, "%v", hit)
		var op *recipes.OpError
		require.ErrorAs(b, err, &op, "%v", hit)
	} else {
		require.NoError(b, err, "%v", hit)
	}
	bubble.Pass(time.Minute)
	require.NoError(b, test.call(ctx, client), "after %v", hit)
	bubble.Pass(time.Minute) // unused watches are removed later
	seen, ok := b.Srv.Session(client.Conn().SessionID())
	require.True(b, ok)
	require.Empty(b, seen.Ephemerals, "%v", hit)
	require.Zero(b, seen.Watches, "%v", hit)
	s, _, failure := recipe.Attach(client, "/")
	require.NoError(b, failure)
	require.Zero(b, s.Budget().Usage(), "%v", hit)
	return hit, isReached, err
}
