package zkutil

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestLostCreateAnswerIsFoundByItsUUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		f.put("/m", "")
		f.once(opCreate, fault{cut: true})
		e := acquire(t, mutexOn(s, "/m"))
		require.Len(t, f.requests(opCreate), 1, "no second create")
		require.Len(t, f.requests(opSync), 1, "the server caught up before the search")
		require.Equal(t, []string{strings.TrimPrefix(e.Path(), "/m/")}, f.children("/m"))
		require.NoError(t, e.Leave())
	})
}

func TestLostCreateRequestIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		f.put("/m", "")
		f.once(opCreate, fault{skip: true, cut: true})
		e := acquire(t, mutexOn(s, "/m"))
		require.Len(t, f.requests(opCreate), 2)
		require.Len(t, f.children("/m"), 1)
		require.NoError(t, e.Leave())
	})
}

// The answer is lost, and so are the first three searches.
func TestLostCreateAnswerAndLostSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		f.put("/m", "")
		created, searches := false, 0
		f.onRequest(func(r seen) fault {
			switch {
			case r.op == opCreate && !created:
				created = true
				return fault{cut: true}
			case (r.op == opSync || r.op == opGetChildren2) && created && searches < 3:
				searches++
				return fault{cut: true}
			}
			return fault{}
		})
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 3, searches)
		require.Len(t, f.requests(opCreate), 1)
		require.Len(t, f.children("/m"), 1)
		require.NoError(t, e.Leave())
	})
}

// The policy gives up while the outcome is unknown: the znode is searched for and
// removed in the background.
func TestGivenUpCreateIsPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		cfg := f.config(30 * time.Second)
		cfg.Retry.MaxAttempts = 2
		s := connect(t, cfg)
		f.put("/m", "")
		cuts := 0
		f.onRequest(func(r seen) fault {
			if cuts < 5 && (r.op == opCreate || r.op == opSync) {
				cuts++
				return fault{cut: true}
			}
			return fault{}
		})
		_, err := mutexOn(s, "/m").Acquire(t.Context())
		require.ErrorContains(t, err, "create: ")
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.Len(t, f.children("/m"), 1, "the create was executed")
		eventually(t, 30*time.Second, func() bool { return len(f.children("/m")) == 0 })
	})
}

// The context ends at every moment of a slow create: no znode is left.
func TestCancelWhileCreateIsInFlight(t *testing.T) {
	for at := time.Duration(0); at <= 2*time.Second; at += 100 * time.Millisecond {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, serverA)
				s := connect(t, f.config(30*time.Second))
				f.put("/m", "")
				f.onRequest(func(r seen) fault {
					if r.op == opCreate {
						return fault{delay: time.Second, cut: lost}
					}
					return fault{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				e, err := mutexOn(s, "/m").Acquire(ctx)
				if err == nil {
					require.NoError(t, e.Leave())
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, at, time.Since(ctxStart(ctx, at)))
				}
				pass(2 * time.Second)
				require.Empty(t, f.children("/m"), "cancelled at %v, answer lost: %v", at, lost)
			})
		}
	}
}

// ctxStart is when a context with a timeout was made.
func ctxStart(ctx context.Context, timeout time.Duration) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline.Add(-timeout)
}

// The session expires between the create and its lost answer: the znode found, if
// any, is not taken for ours.
func TestSessionExpiresWithTheCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		f.put("/m", "")
		old := sessionID(s)
		f.onRequest(func(r seen) fault {
			if r.op == opCreate && r.session == old {
				time.AfterFunc(0, func() { f.expire(old) })
				return fault{cut: true}
			}
			return fault{}
		})
		e := acquire(t, mutexOn(s, "/m"))
		require.NotEqual(t, old, sessionID(s))
		f.mu.Lock()
		require.Equal(t, s.id, f.tree[e.Path()].owner)
		f.mu.Unlock()
		require.NoError(t, e.Leave())
	})
}

// A fifth of all answers is lost, half of them with the request: no attempt fails, no znode
// outlives it, no two hold at once.
func TestNoGhostWithAFifthOfTheAnswersLost(t *testing.T) {
	const workers, rounds = 2, 1000
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		dice := rand.New(rand.NewPCG(1, 2))
		f.onRequest(func(seen) fault { return fault{cut: dice.IntN(5) == 0, skip: dice.IntN(2) == 0} })
		holders, total := 0, 0 // plain: the lock protects them
		done := make(chan struct{})
		for range workers {
			go func() {
				defer func() { done <- struct{}{} }()
				for range rounds {
					e, err := mutexOn(s, "/m").Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if e.Context().Err() == nil {
						holders++
						total++
						if holders != 1 {
							t.Error("two holders")
						}
						holders--
					}
					_ = e.Leave()
				}
			}()
		}
		for range workers {
			<-done
		}
		require.Greater(t, total, workers*rounds/2)
		f.onRequest(nil)
		eventually(t, time.Minute, func() bool { return len(f.children("/m")) == 0 })
	})
}

// Parents are containers, the missing ones only; a server without containers gets
// persistent znodes.
func TestParents(t *testing.T) {
	for _, code := range []int32{codeOK, codeUnimplemented} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			s := connect(t, f.config(6*time.Second))
			f.put("/a", "")
			f.onRequest(func(r seen) fault {
				if r.op == opCreateContainer {
					return fault{code: code}
				}
				return fault{}
			})
			require.NoError(t, acquire(t, mutexOn(s, "/a/b/c")).Leave())
			require.Equal(t, []string{"b"}, f.children("/a"))
			require.Equal(t, []string{"c"}, f.children("/a/b"))
			for _, r := range f.requests(opCreate, opCreateContainer) {
				require.NotEqual(t, "/a", r.path, "one that exists is not touched")
			}
		})
	}
}

// The container is reaped between its creation and the child's.
func TestParentReapedInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		reaped := 0
		f.onRequest(func(r seen) fault {
			if _, found := f.tree["/m"]; found && r.op == opCreate && reaped < 5 {
				reaped++
				f.removeLocked("/m")
			}
			return fault{}
		})
		require.NoError(t, acquire(t, mutexOn(s, "/m")).Leave())
		require.Equal(t, 5, reaped)
	})
}

func TestSequenceExhausted(t *testing.T) {
	for _, counter := range []int32{1<<31 - 1, -1 << 31, -7} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			s := connect(t, f.config(6*time.Second))
			f.put("/m", "")
			f.mu.Lock()
			f.tree["/m"].children = counter
			f.mu.Unlock()
			_, err := mutexOn(s, "/m").Acquire(t.Context())
			require.ErrorIs(t, err, ErrSequenceExhausted)
			synctest.Wait()
			require.Empty(t, f.children("/m"))
		})
	}
}
