package recipes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// foreignTimeout is the timeout of the session of the process that interferes.
const foreignTimeout = 10 * time.Second

// interferences are changes of another process, to the znodes of a client or to those of its peers. All znodes are below /a, /b and /c.
func interferences() map[string]func(b *bubble.Bubble, own int64) {
	each := func(change func(b *bubble.Bubble, znode string)) func(*bubble.Bubble, int64) {
		return func(b *bubble.Bubble, own int64) {
			for znode, owner := range owners(b.Srv, "/", map[string]int64{}) {
				if owner == own {
					change(b, znode)
				}
			}
		}
	}
	twin := func(number string) func(*bubble.Bubble, int64) {
		return each(func(b *bubble.Bubble, znode string) {
			if !strings.Contains(znode, "_c_") {
				return
			}
			name := znode[:len(znode)-len(number)] + number
			if _, _, exists := b.Srv.Get(name); !exists {
				b.Srv.Seed(zktest.Znode{Path: name, Session: b.Srv.OpenSession(foreignTimeout)})
			}
		})
	}
	return map[string]func(b *bubble.Bubble, own int64){
		"own znodes deleted":     each(func(b *bubble.Bubble, znode string) { b.Srv.Delete(znode) }),
		"own znodes overwritten": each(func(b *bubble.Bubble, znode string) { b.Srv.Put(znode, []byte("overwritten")) }),
		"own znodes revoked":     each(func(b *bubble.Bubble, znode string) { b.Srv.Put(znode, []byte("__REVOKE__")) }),
		"twins ahead":            twin("0000000000"),
		"twins behind":           twin("0000009999"),
		"znodes of others deleted": func(b *bubble.Bubble, own int64) {
			for znode, owner := range owners(b.Srv, "/", map[string]int64{}) {
				if owner != own {
					b.Srv.Delete(znode)
				}
			}
		},
		"all deleted": func(b *bubble.Bubble, _ int64) {
			for _, dir := range []string{"/a", "/b", "/c"} {
				b.Srv.Delete(dir)
			}
		},
		"reaped": func(b *bubble.Bubble, _ int64) { b.Srv.Reap() },
	}
}

// owners adds the ephemeral znodes below a path, with their sessions.
func owners(srv *zktest.Server, path string, found map[string]int64) map[string]int64 {
	for _, name := range srv.Children(path) {
		child := strings.TrimSuffix(path, "/") + "/" + name
		if _, stat, ok := srv.Get(child); ok && stat.EphemeralOwner != 0 {
			found[child] = stat.EphemeralOwner
		}
		owners(srv, child, found)
	}
	return found
}

// operation prepares an operation of client. It returns the operation and a check to run afterwards.
type operation func(b *bubble.Bubble, client, peer *recipes.Client) (operate, require func())

// acquiring waits for a lock, which a peer may hold for a while. Afterwards, a peer that wants the lock gets it as soon as the
// client's lease ends, and no earlier.
func acquiring(kind string, isHeld bool) operation {
	return func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
		var held []bubble.Holder
		var err error
		isTry, isMulti := strings.HasSuffix(kind, "try"), strings.HasPrefix(kind, "multilock")
		operate = func() {
			if !isHeld {
				held, err = kindsOfLocks()[kind](client)(b.Context())
				return
			}
			blocking, blocked := blocker(kind, peer)(b.Context())
			require.NoError(b, blocked)
			done := bubble.Start(b.Context(), retried(kindsOfLocks()[kind](client)))
			bubble.Pass(5 * time.Second)
			requireOneHolder(b, blocking, done)
			for _, lease := range blocking {
				_ = lease.Release() // perhaps it was deleted
			}
			got := bubble.Receive(b, done)
			held, err = got.Lease, got.Err
		}
		return operate, func() {
			switch {
			case err != nil && isMulti && errors.Is(err, recipes.ErrNodeDeleted): // of a part that was acquired already
			case err != nil && isTry:
				require.ErrorIs(b, err, recipes.ErrNotAcquired)
			default:
				require.NoError(b, err)
			}
			requireReleases(b, kind, held, peer)
		}
	}
}

// requireOneHolder requires that no waiter is granted while the holder's lease is valid.
func requireOneHolder(b *bubble.Bubble, holding []bubble.Holder, waiter <-chan bubble.Outcome[[]bubble.Holder]) {
	b.Helper()
	for _, lease := range holding {
		if lease.Context().Err() != nil {
			return
		}
	}
	require.Empty(b, waiter, "two holders")
}

// requireReleases requires that a valid lease keeps a peer waiting, and that the peer is granted the lock afterwards.
func requireReleases(b *bubble.Bubble, kind string, held []bubble.Holder, peer *recipes.Client) {
	b.Helper()
	bubble.Pass(bubble.Moment)
	next := bubble.Start(b.Context(), retried(blocker(kind, peer)))
	bubble.Pass(bubble.Moment)
	if len(held) > 0 {
		requireOneHolder(b, held, next)
	}
	for _, lease := range held {
		if cause := context.Cause(lease.Context()); cause != nil {
			require.ErrorIs(b, cause, recipes.ErrNodeDeleted)
			require.ErrorIs(b, lease.Release(), recipes.ErrNodeDeleted)
			continue
		}
		if err := lease.Release(); err != nil {
			require.ErrorIs(b, err, recipes.ErrNodeDeleted)
		}
	}
	start := time.Now()
	b.Release(bubble.Granted(b, next)...)
	require.LessOrEqual(b, time.Since(start), foreignTimeout+time.Second)
}

// retried tries again while the lock is held.
func retried(acquire acquirer) acquirer {
	return func(ctx context.Context) ([]bubble.Holder, error) {
		for {
			held, err := acquire(ctx)
			if !errors.Is(err, recipes.ErrNotAcquired) {
				return held, err
			}
			bubble.Pause(time.Second)
		}
	}
}

func releasing(kind string) operation {
	return func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
		held, err := kindsOfLocks()[kind](client)(b.Context())
		require.NoError(b, err)
		operate = func() {
			for _, lease := range held {
				if err := lease.Release(); err != nil {
					require.ErrorIs(b, err, recipes.ErrNodeDeleted)
				}
			}
		}
		return operate, func() { requireReleases(b, kind, nil, peer) }
	}
}

// operations are all operations of all recipes that send requests.
func operations() map[string]operation {
	all := map[string]operation{
		"latch, start": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			l, other := made(latch.New(client, "/a")), made(latch.New(peer, "/a"))
			return func() { require.NoError(b, l.Start()); bubble.Acquire(b, l.Await) }, func() {
				require.NoError(b, other.Start())
				requireOneLeader(b, l, other)
				require.NoError(b, l.Close())
				bubble.Acquire(b, other.Await)
				require.NoError(b, other.Close())
			}
		},
		"latch, second": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			l, other := made(latch.New(client, "/a")), made(latch.New(peer, "/a"))
			return func() {
					require.NoError(b, other.Start())
					bubble.Acquire(b, other.Await)
					require.NoError(b, l.Start())
					bubble.Pass(5 * time.Second)
					require.False(b, l.HasLeadership() && other.HasLeadership())
					require.NoError(b, other.Close())
					bubble.Acquire(b, l.Await)
				}, func() {
					requireOneLeader(b, l)
					require.NoError(b, l.Close())
				}
		},
		"latch, close": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			l, other := made(latch.New(client, "/a")), made(latch.New(peer, "/a"))
			require.NoError(b, l.Start())
			bubble.Acquire(b, l.Await)
			require.NoError(b, other.Start())
			bubble.Pass(bubble.Moment)
			return func() { require.NoError(b, l.Close()) }, func() {
				require.False(b, l.HasLeadership())
				bubble.Acquire(b, other.Await)
				require.NoError(b, other.Close())
			}
		},
		"latch, transfer": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			l, other := made(latch.New(client, "/a", latch.WithID("l"))), made(latch.New(peer, "/a", latch.WithID("other")))
			require.NoError(b, l.Start())
			bubble.Acquire(b, l.Await)
			require.NoError(b, other.Start())
			bubble.Pass(bubble.Moment)
			return func() {
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					defer cancel()
					_ = l.TransferTo(ctx, "other") // fails if it lost its znode
				}, func() {
					bubble.Pass(time.Minute)
					requireOneLeader(b, l, other)
					require.NoError(b, l.Close())
					bubble.Acquire(b, other.Await)
					require.NoError(b, other.Close())
				}
		},
		"group, join": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			g := made(group.New(client, "/a", group.WithID("member")))
			return func() { require.NoError(b, g.Join([]byte("data"))); require.NoError(b, g.Await(b.Context())) }, func() {
				bubble.Pass(time.Minute)
				members, err := made(group.New(peer, "/a")).Members(b.Context())
				require.NoError(b, err)
				require.Len(b, members, 1)
				require.Equal(b, "data", string(members[0].Data))
				require.NoError(b, g.Leave())
			}
		},
		"group, leave": func(b *bubble.Bubble, client, _ *recipes.Client) (operate, check func()) {
			g := made(group.New(client, "/a", group.WithID("member")))
			require.NoError(b, g.Join([]byte("data")))
			require.NoError(b, g.Await(b.Context()))
			return func() { require.NoError(b, g.Leave()) }, func() {}
		},
		"once": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			runs := 0
			do := func(c *recipes.Client) error {
				return made(once.New(c, "/a")).Do(b.Context(), "tick-1", func(context.Context, *recipes.Lease) error { runs++; return nil })
			}
			return func() {
					if err := do(client); runs == 0 {
						require.Error(b, err)
					}
				}, func() {
					isRecorded := runs > 0 && len(b.Srv.Children("/a")) > 0
					err := do(peer)
					if isRecorded {
						require.ErrorIs(b, err, once.ErrDone)
						require.Equal(b, 1, runs)
					}
				}
		},
		"revoke": func(b *bubble.Bubble, client, peer *recipes.Client) (operate, check func()) {
			held := bubble.Acquire(b, made(mutex.New(peer, "/a")).Acquire)
			return func() { require.NoError(b, revoke.New(client).AttemptRevoke(b.Context(), held.Path())) }, func() {
				select {
				case <-held.Revoked():
					b.Release(held)
				case <-held.Context().Done():
					require.ErrorIs(b, held.Release(), recipes.ErrNodeDeleted)
				}
			}
		},
	}
	for kind := range kindsOfLocks() {
		all[kind+", free"], all[kind+", held"], all[kind+", release"] = acquiring(kind, false), acquiring(kind, true), releasing(kind)
	}
	return all
}

// requireOneLeader requires that exactly one of the latches leads.
func requireOneLeader(b *bubble.Bubble, latches ...*latch.LeaderLatch) {
	b.Helper()
	leaders := 0
	for range 2 * foreignTimeout / time.Second {
		bubble.Pass(time.Second)
		leaders = 0
		for _, l := range latches {
			if l.HasLeadership() {
				leaders++
			}
		}
		require.LessOrEqual(b, leaders, 1)
	}
	require.Equal(b, 1, leaders)
}

// Another process changes the znodes of a recipe between any two requests of an operation. For every change and position, the
// operation ends in order, no two clients hold the lock or lead, the next one has its turn, and no znode is left behind.
func TestInterferenceBetweenTwoRequests(t *testing.T) {
	for name, prepare := range operations() {
		for change, interfere := range interferences() {
			t.Run(name+"/"+change, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					for at := 1; playInterference(b, prepare, interfere, at); at += testkit.Shorter(1, 4) {
						require.Less(b, at, 100)
					}
				})
			})
		}
	}
}

// playInterference runs an operation in which another process interferes before the request with a number, and reports whether the
// operation had so many.
func playInterference(b *bubble.Bubble, prepare operation, interfere func(*bubble.Bubble, int64), at int) (isReached bool) {
	b.Helper()
	client, peer := b.Client(), b.Client()
	own, n := client.Conn().SessionID(), 0
	operate, check := prepare(b, client, peer)
	remove := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == own && r.Op != zktest.OpPing {
			if n++; n == at {
				interfere(b, own)
			}
		}
		return zktest.Fault{}
	})
	operate()
	remove()
	check()
	bubble.Pass(2 * foreignTimeout)
	require.Empty(b, owners(b.Srv, "/", map[string]int64{}), "before request %d", at)
	require.NoError(b, client.Close())
	require.NoError(b, peer.Close())
	for _, dir := range []string{"/a", "/b", "/c"} {
		b.Srv.Delete(dir)
	}
	return n >= at
}

// A waiter that lost its znode, and whose creates are then refused or lost, retries at growing intervals. It misses no change
// by other processes meanwhile: once creates succeed and the holder releases, the waiter has the lock.
func TestInterferenceDuringABackOff(t *testing.T) {
	for trouble, fault := range map[string]zktest.Fault{"refused": {Refusal: zktest.RefuseTimeout}, "lost": {Lost: zktest.RequestLost}} {
		for kind := range kindsOfLocks() {
			if strings.HasSuffix(kind, "try") || kind == "multilock" {
				continue // a lost part ends a multilock's wait
			}
			for change, interfere := range interferences() {
				t.Run(trouble+"/"+kind+"/"+change, func(t *testing.T) {
					bubble.Run(t, func(b *bubble.Bubble) { playBackOff(b, kind, fault, interfere) })
				})
			}
		}
	}
}

func playBackOff(b *bubble.Bubble, kind string, fault zktest.Fault, interfere func(*bubble.Bubble, int64)) {
	b.Helper()
	client, peer := b.Client(), b.Client()
	own := client.Conn().SessionID()
	blocking, err := blocker(kind, peer)(b.Context())
	require.NoError(b, err)
	waiter := bubble.Waiting(b, b.Context(), kindsOfLocks()[kind](client))
	creates := 0
	remove := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session != own || r.Op != zktest.OpCreate2 {
			return zktest.Fault{}
		}
		creates++
		return fault
	})
	interferences()["own znodes deleted"](b, own)
	bubble.Pass(5 * time.Second)
	require.Greater(b, creates, 1)
	interfere(b, own)
	bubble.Pass(5 * time.Second)
	requireOneHolder(b, blocking, waiter)
	remove()
	for _, lease := range blocking {
		_ = lease.Release() // perhaps it was deleted
	}
	held := bubble.Granted(b, waiter)
	requireReleases(b, kind, held, peer)
	bubble.Pass(2 * foreignTimeout)
	require.Empty(b, owners(b.Srv, "/", map[string]int64{}))
}
