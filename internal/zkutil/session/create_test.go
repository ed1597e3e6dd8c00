package session_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestLostCreateAnswerIsFoundByItsUUID(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		srv.DropReply(zktest.OpCreate2, 1)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Len(t, srv.Log.Requests(zktest.OpCreate2), 1, "no second create")
		require.Len(t, srv.Log.Requests(zktest.OpSync), 1, "the server caught up before the search")
		require.Equal(t, []string{strings.TrimPrefix(e.Path(), "/m/")}, srv.Children("/m"))
		require.NoError(t, e.Leave())
	})
}

// The search finds the znode of this attempt, and no other znodes of the same client or another one in the queue.
func TestLostCreateAnswerLeavesOthersAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, other := fixture.TwoClients(t, srv, 30*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		first := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		synctest.Wait()
		srv.DropReply(zktest.OpCreate2, 1)
		second := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(time.Second)
		require.Len(t, srv.Children("/m"), 3)
		require.NoError(t, e.Leave())
		a := <-first
		require.NoError(t, a.Err)
		bubble.Pass(time.Second)
		require.Empty(t, second, "two holders")
		require.NoError(t, a.Lease.Leave())
		b := <-second
		require.NoError(t, b.Err)
		require.NotEqual(t, a.Lease.Path(), b.Lease.Path())
		require.NoError(t, b.Lease.Leave())
		require.Empty(t, srv.Children("/m"))
	})
}

func TestLostCreateRequestIsRepeated(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		srv.DropRequest(zktest.OpCreate2, 1)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Len(t, srv.Log.Requests(zktest.OpCreate2), 2)
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, e.Leave())
	})
}

// The answer is lost, and so are the first three searches.
func TestLostCreateAnswerAndLostSearch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		created, searches := false, 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Op == zktest.OpCreate2 && !created:
				created = true
				return zktest.Fault{Lost: zktest.ReplyLost}
			case (r.Op == zktest.OpSync || r.Op == zktest.OpGetChildren2) && created && searches < 3:
				searches++
				return zktest.Fault{Lost: zktest.ReplyLost}
			}
			return zktest.Fault{}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 3, searches)
		require.Len(t, srv.Log.Requests(zktest.OpCreate2), 1)
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, e.Leave())
	})
}

// The policy gives up while the outcome is unknown. The client searches for the znode and deletes it in the
// background.
func TestGivenUpCreateIsPurged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(30 * time.Second)
		cfg.Retry.MaxAttempts = 2
		s := fixture.Connect(t, cfg)
		srv.Put("/m", nil)
		cuts := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if cuts < 5 && (r.Op == zktest.OpCreate2 || r.Op == zktest.OpSync) {
				cuts++
				return zktest.Fault{Lost: zktest.ReplyLost}
			}
			return zktest.Fault{}
		})
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.ErrorContains(t, err, "create: ")
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.Len(t, srv.Children("/m"), 1, "the create was executed")
		srv.Put("/m/"+fixture.TwinOf(srv.Children("/m")[0], "0000000007"), nil) // by another pending create
		bubble.Eventually(t, 30*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// The context ends at every moment of a slow create. No znode is left.
func TestCancelWhileCreateIsInFlight(t *testing.T) {
	for at := time.Duration(0); at <= 2*time.Second; at += 100 * time.Millisecond {
		for _, lost := range []zktest.Loss{zktest.NothingLost, zktest.ReplyLost} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(30*time.Second))
				srv.Put("/m", nil)
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpCreate2 {
						return zktest.Fault{Delay: time.Second, Lost: lost}
					}
					return zktest.Fault{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
				if err == nil {
					require.NoError(t, e.Leave())
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, at, time.Since(ctxStart(ctx, at)))
				}
				bubble.Pass(2 * time.Second)
				require.Empty(t, srv.Children("/m"), "cancelled at %v, loss %v", at, lost)
			})
		}
	}
}

// ctxStart is when a context with a timeout was made.
func ctxStart(ctx context.Context, timeout time.Duration) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline.Add(-timeout)
}

// The session expires between the create and its lost answer. A znode found later is not mistaken for ours.
func TestSessionExpiresWithTheCreate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m", nil)
		old := fixture.SessionID(s)
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate2 && r.Session == old {
				time.AfterFunc(time.Millisecond, func() { srv.Expire(old) })
				return zktest.Fault{Lost: zktest.ReplyLost, Delay: 2 * time.Millisecond}
			}
			return zktest.Fault{}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.NotEqual(t, old, fixture.SessionID(s))
		_, stat, _ := srv.Get(e.Path())
		require.Equal(t, fixture.SessionID(s), stat.EphemeralOwner)
		require.NoError(t, e.Leave())
	})
}

// A fifth of all answers is lost, half of them with the request. No attempt fails, no znode outlives it, and no two
// clients hold at once.
func TestNoGhostWithAFifthOfTheAnswersLost(t *testing.T) {
	const workers = 2
	rounds := testkit.Shorter(1000, 100)
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		dice := rand.New(rand.NewPCG(1, 2))
		remove := srv.OnRequest(func(zktest.Request) zktest.Fault {
			return fixture.Cut(dice.IntN(5) == 0, []zktest.Loss{zktest.RequestLost, zktest.ReplyLost}[dice.IntN(2)])
		})
		watch := &holderWatch{t: t}
		var work sync.WaitGroup
		for range workers {
			work.Go(func() {
				for range rounds {
					e, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if e.Context().Err() == nil {
						watch.enter(e)
						bubble.Pause(10 * time.Millisecond)
						watch.exit(e)
					}
					_ = e.Leave()
				}
			})
		}
		work.Wait()
		require.Greater(t, watch.total, workers*rounds/2)
		remove()
		bubble.Eventually(t, time.Minute, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// holderWatch fails a test in which two hold at once. It does not rely on the lock under test.
type holderWatch struct {
	t *testing.T

	mu     sync.Mutex // protects what is below
	holder *session.Entry
	total  int
}

func (w *holderWatch) enter(e *session.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder != nil && w.holder.Context().Err() == nil {
		w.t.Error("two holders")
	}
	w.holder = e
	w.total++
}

func (w *holderWatch) exit(e *session.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder == e {
		w.holder = nil
	}
}

// Parents are containers, the missing ones only; a server without containers gets
// persistent znodes.
func TestParents(t *testing.T) {
	for _, refusal := range []zktest.Refusal{0, zktest.RefuseUnimplemented} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.Put("/a", nil)
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpCreateContainer {
					return zktest.Fault{Refusal: refusal}
				}
				return zktest.Fault{}
			})
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/a/b/c").Acquire).Leave())
			require.Equal(t, []string{"b"}, srv.Children("/a"))
			require.Equal(t, []string{"c"}, srv.Children("/a/b"))
			srv.Reap()
			srv.Reap() // the outer one, once empty
			require.Equal(t, refusal == 0, len(srv.Children("/a")) == 0, "containers go")
			for _, r := range srv.Log.Requests(zktest.OpCreate2, zktest.OpCreateContainer) {
				require.NotEqual(t, "/a", r.Path, "one that exists is not touched")
			}
		})
	}
}

// Servers before 3.5 have no create2, so the token and the owner are read from the znode.
func TestServerWithoutCreate2(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate2 {
				return zktest.Fault{Refusal: zktest.RefuseUnimplemented}
			}
			return zktest.Fault{}
		})
		first := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		synctest.Wait()
		require.NoError(t, first.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.Greater(t, got.Lease.Token(), first.Token())
		require.Positive(t, first.Token())
		require.NoError(t, got.Lease.Leave())
		require.Empty(t, srv.Children("/m"))
	})
}

// The container is reaped between its creation and the child's.
func TestParentReapedInBetween(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		reaped := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if _, _, found := srv.Get("/m"); found && r.Op == zktest.OpCreate2 && reaped < 5 {
				reaped++
				srv.Delete("/m")
			}
			return zktest.Fault{}
		})
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		require.Equal(t, 5, reaped)
	})
}

func TestSequenceExhausted(t *testing.T) {
	for _, counter := range []int32{1<<31 - 1, -1 << 31, -7} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.Put("/m", nil)
			srv.SetSequence("/m", counter)
			_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
			require.ErrorIs(t, err, zkutil.ErrSequenceExhausted)
			synctest.Wait()
			require.Empty(t, srv.Children("/m"))
		})
	}
}

// The answer to a create is lost, and two znodes carry the uuid. One is the contender's, the other one is deleted.
func TestLostCreateAnswerAndTwoZnodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		srv.DropReply(zktest.OpCreate2, 1)
		twins := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if children := srv.Children("/m"); r.Op == zktest.OpSync && twins == 0 && len(children) == 1 {
				twins++
				srv.Put("/m/"+fixture.TwinOf(children[0], "0000000007"), nil)
				require.Len(t, srv.Children("/m"), 2)
			}
			return zktest.Fault{}
		})
		path, err := s.CreateProtected(t.Context(), "/m", "lock-", nil) // no waiter looks at the queue
		require.NoError(t, err)
		require.Equal(t, 1, twins)
		bubble.Eventually(t, time.Second, func() bool { return slices.Equal(srv.Children("/m"), []string{path[len("/m/"):]}) })
	})
}

// A create without an answer is sent again, or not, and then abandoned. Its first request is executed only after the search for the znode. No
// znode is left.
func TestAbandonedCreateIsExecutedLate(t *testing.T) {
	const timeout = 6 * time.Second
	for _, creates := range []int{1, 2} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout))
			srv.Put("/m", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent, late := 0, ""
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpCreate2 {
					return zktest.Fault{}
				}
				if sent++; sent == creates {
					time.AfterFunc(time.Millisecond, cancel)
				}
				if late = r.Path + "0000000009"; sent == 1 {
					return zktest.Fault{Lost: zktest.RequestLost}
				}
				return zktest.Fault{Delay: 10 * time.Millisecond}
			})
			_, err := s.CreateProtected(ctx, "/m", "lock-", nil)
			require.ErrorIs(t, err, context.Canceled)
			bubble.Pass(timeout / 2)
			require.Equal(t, creates, sent)
			require.Empty(t, srv.Children("/m"))
			srv.Put(late, nil)
			bubble.Pass(2 * timeout)
			require.Empty(t, srv.Children("/m"))
		})
	}
}
