package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Each lock ends in each way at the documented moment, and leaves nothing behind: no znode, watch, session or connection. The
// bubble checks the goroutines.

// endLease is a lease of any lock.
type endLease interface {
	Context() context.Context
	Release() error
}

// endLock is a lock under test, as functions of one type.
type endLock struct {
	acquire, try func(ctx context.Context) (endLease, error)
}

// generic returns functions of a lock as those of an endLock.
func generic[L endLease](acquire, try func(ctx context.Context) (L, error)) endLock {
	convert := func(acquire func(context.Context) (L, error)) func(context.Context) (endLease, error) {
		return func(ctx context.Context) (endLease, error) {
			lease, err := acquire(ctx)
			if err != nil {
				return nil, err
			}
			return lease, nil
		}
	}
	return endLock{convert(acquire), convert(try)}
}

const endPath = "/ends"

// endLocks returns the locks, each on the same path, so that two clients contend. own is under test; the others exclude it.
var endLocks = map[string]func(b *bubble.Bubble, client *recipes.Client, isOwn bool) endLock{
	"mutex": func(b *bubble.Bubble, client *recipes.Client, _ bool) endLock {
		m, err := mutex.New(client, endPath)
		require.NoError(b, err)
		return generic(m.Acquire, m.TryAcquire)
	},
	"cohort": func(b *bubble.Bubble, client *recipes.Client, _ bool) endLock {
		m, err := mutex.New(client, endPath, mutex.WithCohort(mutex.Cohort{}))
		require.NoError(b, err)
		return generic(m.Acquire, m.TryAcquire)
	},
	"semaphore": func(b *bubble.Bubble, client *recipes.Client, _ bool) endLock {
		s, err := semaphore.New(client, endPath, 1)
		require.NoError(b, err)
		return generic(s.Acquire, s.TryAcquire)
	},
	"write lock": func(b *bubble.Bubble, client *recipes.Client, _ bool) endLock {
		l, err := rwlock.New(client, endPath)
		require.NoError(b, err)
		return generic(l.WriteLock().Acquire, l.WriteLock().TryAcquire)
	},
	"read lock": func(b *bubble.Bubble, client *recipes.Client, isOwn bool) endLock {
		l, err := rwlock.New(client, endPath)
		require.NoError(b, err)
		if isOwn {
			return generic(l.ReadLock().Acquire, l.ReadLock().TryAcquire)
		}
		return generic(l.WriteLock().Acquire, l.WriteLock().TryAcquire)
	},
	"multilock": func(b *bubble.Bubble, client *recipes.Client, _ bool) endLock {
		m, err := multilock.NewMutexes(client, []string{endPath + "/1", endPath + "/2", endPath + "/3"})
		require.NoError(b, err)
		return generic(m.Acquire, m.TryAcquire)
	},
}

// contest is a lock of a client with faults, a rival of the same client, and a lock of a client without faults. All were used
// before, so that all directories exist.
type contest struct {
	*bubble.Bubble
	client             *recipes.Client // with troubles
	own, rival, others endLock
	start              time.Time
}

const endOperationTimeout = 7 * time.Second

func eachEnd(t *testing.T, test func(c *contest)) {
	t.Helper()
	for name, lockOf := range endLocks {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled(recipes.WithOperationTimeout(endOperationTimeout))
				c := &contest{b, client, lockOf(b, client, true), lockOf(b, client, false), lockOf(b, b.Client(), false), time.Time{}}
				for _, l := range []endLock{c.own, c.rival, c.others} {
					b.Release(bubble.Acquire(b, l.acquire))
				}
				c.Srv.RequireIdle(b)
				c.start = time.Now()
				test(c)
			})
		})
	}
}

// after requires the given time since the start.
func (c *contest) after(want time.Duration) {
	c.Helper()
	require.Equal(c, want, time.Since(c.start))
}

// idle requires that no ephemeral znode and no watch exists now.
func (c *contest) idle() {
	c.Helper()
	synctest.Wait()
	now := time.Now()
	c.Srv.RequireIdle(c)
	require.Equal(c, now, time.Now(), "something was left for a while")
}

// A release takes no time, and so does the grant of the next one.
func TestEndByRelease(t *testing.T) {
	eachEnd(t, func(c *contest) {
		lease := bubble.Acquire(c.Bubble, c.own.acquire)
		bubble.Pass(time.Minute) // it is followed
		next := bubble.Start(c.Context(), c.others.acquire)
		bubble.Pass(time.Minute)
		c.start = time.Now()
		c.Release(lease)
		following := bubble.Granted(c.Bubble, next)
		c.after(0)
		c.Release(following)
		c.after(0)
		c.idle()
	})
}

// A release in an outage takes the operation timeout, and the client deletes the leftovers after the reconnect.
func TestEndByReleaseInAnOutage(t *testing.T) {
	eachEnd(t, func(c *contest) {
		lease := bubble.Acquire(c.Bubble, c.own.acquire)
		c.Srv.Partition(c.client.Conn().SessionID())
		c.start = time.Now()
		require.ErrorIs(c, lease.Release(), recipes.ErrNodeNotDeleted)
		require.ErrorIs(c, context.Cause(lease.Context()), recipes.ErrReleased)
		c.after(endOperationTimeout)
		require.ErrorIs(c, lease.Release(), recipes.ErrNotHeld)
		c.after(endOperationTimeout)
		c.Srv.Heal()
		bubble.Pass(10 * time.Second)
		c.idle()
	})
}

// A waiter returns in the instant in which its context ends, also in an outage, and its znode is deleted.
func TestEndOfAWait(t *testing.T) {
	for _, isCut := range []bool{false, true} {
		eachEnd(t, func(c *contest) {
			held := bubble.Acquire(c.Bubble, c.others.acquire)
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			c.start = time.Now()
			waiting := bubble.Start(ctx, c.own.acquire)
			bubble.Pass(4 * time.Second)
			if isCut {
				c.Srv.Partition(c.client.Conn().SessionID())
			}
			require.ErrorIs(c, bubble.Receive(c.Bubble, waiting).Err, context.DeadlineExceeded)
			c.after(5 * time.Second)
			c.Srv.Heal()
			bubble.Pass(10 * time.Second)
			c.Release(held)
			c.idle()
		})
	}
}

// A try in vain takes no time, and leaves nothing.
func TestEndOfATry(t *testing.T) {
	eachEnd(t, func(c *contest) {
		held := bubble.Acquire(c.Bubble, c.others.acquire)
		c.start = time.Now()
		_, err := c.own.try(c.Context())
		require.ErrorIs(c, err, recipes.ErrNotAcquired)
		c.after(0)
		c.Release(held)
		c.idle()
	})
}

// A failed try whose deletion is unanswered returns with its context, when the client is closed, or after the operation
// timeout, whichever is first.
func TestEndOfATryWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		patience, closeAfter, want time.Duration
	}{
		"context":           {patience: 2 * time.Second, want: 2 * time.Second},
		"operation timeout": {patience: time.Minute, want: endOperationTimeout},
		"close":             {patience: time.Minute, closeAfter: 3 * time.Second, want: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			eachEnd(t, func(c *contest) {
				held := bubble.Acquire(c.Bubble, c.others.acquire)
				session := c.client.Conn().SessionID()
				remove := c.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpDelete && r.Session == session {
						return zktest.Fault{Lost: zktest.NoAnswer}
					}
					return zktest.Fault{}
				})
				ctx, cancel := context.WithTimeout(c.Context(), test.patience)
				defer cancel()
				if test.closeAfter > 0 {
					time.AfterFunc(test.closeAfter, func() { _ = c.client.Close() })
				}
				c.start = time.Now()
				_, err := c.own.try(ctx)
				require.Error(c, err)
				c.after(test.want)
				remove()
				bubble.Pass(30 * time.Second)
				c.Release(held)
				c.idle()
			})
		})
	}
}

// A loss ends the lease at the end of trust, before the session expires.
func TestEndByLoss(t *testing.T) {
	eachEnd(t, func(c *contest) {
		lease := bubble.Acquire(c.Bubble, c.own.acquire)
		c.Srv.Partition(c.client.Conn().SessionID())
		next := bubble.Start(c.Context(), c.others.acquire)
		c.start = time.Now()
		require.ErrorIs(c, c.Cause(lease), recipes.ErrSessionLost)
		c.after(4 * time.Second) // 2T/3
		c.start = time.Now()
		require.ErrorIs(c, lease.Release(), recipes.ErrSessionLost)
		c.after(0)
		c.Srv.Heal()
		c.Release(bubble.Granted(c.Bubble, next))
		bubble.Pass(10 * time.Second)
		c.idle()
	})
}

// Close ends a lease and a wait in the same instant, together with the session and the connection.
func TestEndByClose(t *testing.T) {
	eachEnd(t, func(c *contest) {
		sessions, connections := len(c.Srv.Sessions()), c.Srv.Connections()
		lease := bubble.Acquire(c.Bubble, c.own.acquire)
		waiting := bubble.Waiting(c.Bubble, c.Context(), c.rival.acquire)
		c.start = time.Now()
		require.NoError(c, c.client.Close())
		require.ErrorIs(c, context.Cause(lease.Context()), recipes.ErrClosed)
		require.ErrorIs(c, bubble.Receive(c.Bubble, waiting).Err, recipes.ErrClosed)
		require.ErrorIs(c, lease.Release(), recipes.ErrClosed)
		c.after(0)
		c.idle()
		require.Len(c, c.Srv.Sessions(), sessions-1)
		require.Equal(c, connections-1, c.Srv.Connections())
		c.Release(bubble.Acquire(c.Bubble, c.others.acquire))
		c.after(0)
	})
}

// election is an election with a candidate of its own.
type election struct {
	start func() error
	close func() error
	leads func() bool
	path  func() string
}

// elections are the elections. work runs as long as the term's context lasts, and then for a while.
var elections = map[string]func(b *bubble.Bubble, client *recipes.Client, grace, work time.Duration) election{
	"latch": func(b *bubble.Bubble, client *recipes.Client, grace, work time.Duration) election {
		l, err := latch.New(client, endPath, latch.WithStepDownGrace(grace), latch.WithCloseMode(latch.NotifyLeader), latch.WithListener(latch.Listener{
			IsLeader: func(term *recipes.Lease) {
				<-term.Context().Done()
				time.Sleep(work) //nolint:forbidigo // virtual time
			},
		}))
		require.NoError(b, err)
		return election{l.Start, l.Close, l.HasLeadership, l.Path}
	},
	"selector": func(b *bubble.Bubble, client *recipes.Client, grace, work time.Duration) election {
		s, err := selector.New(client, endPath, func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			time.Sleep(work) //nolint:forbidigo // virtual time
			return nil
		}, selector.WithStepDownGrace(grace), selector.WithAutoRequeue())
		require.NoError(b, err)
		return election{s.Start, s.Close, s.HasLeadership, s.Path}
	},
}

// Close of an election returns after the work returns and the znode is deleted: at once without work, and after the grace at
// the latest. The next candidate leads in the instant in which the work returns.
func TestEndOfAnElection(t *testing.T) {
	const grace = 4 * time.Second
	for name, electionOf := range elections {
		for _, work := range []time.Duration{0, 3 * time.Second, grace + time.Second} {
			t.Run(name+" with work of "+work.String(), func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					own, next := electionOf(b, b.Client(), grace, work), electionOf(b, b.Client(), grace, 0)
					require.NoError(b, own.start())
					bubble.Pass(bubble.Moment)
					require.True(b, own.leads())
					require.NoError(b, next.start())
					bubble.Pass(time.Minute)
					require.Len(b, b.Queue(endPath), 2)
					start := time.Now()
					err := own.close()
					require.Equal(b, min(work, grace), time.Since(start))
					if work > grace {
						require.ErrorIs(b, err, recipes.ErrStepDownGrace)
						require.False(b, next.leads())
					} else {
						require.NoError(b, err)
					}
					bubble.Pass(time.Until(start.Add(work)))
					require.True(b, next.leads())
					require.Empty(b, own.path())
					require.Len(b, b.Queue(endPath), 1)
					require.NoError(b, next.close())
					b.Srv.RequireIdle(b)
				})
			})
		}
	}
}

// A candidate that waits leaves at once, and has no path from then on. The others do not notice.
func TestEndOfACandidateThatWaits(t *testing.T) {
	for name, electionOf := range elections {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				own, next := electionOf(b, b.Client(), time.Minute, 0), electionOf(b, b.Client(), time.Minute, 0)
				for _, e := range []election{own, next} {
					require.NoError(b, e.start())
					bubble.Pass(bubble.Moment)
				}
				bubble.Pass(time.Minute)
				require.Equal(b, []string{own.path(), next.path()}, b.Queue(endPath))
				start := time.Now()
				require.NoError(b, next.close())
				require.Equal(b, start, time.Now())
				require.Empty(b, next.path())
				require.True(b, own.leads())
				require.Equal(b, []string{own.path()}, b.Queue(endPath))
				require.NoError(b, own.close())
				require.Empty(b, own.path())
				b.Srv.RequireIdle(b)
			})
		})
	}
}

// Close of an election whose znodes can't be deleted waits for one operation timeout in all.
func TestEndOfAnElectionInAnOutage(t *testing.T) {
	for name, electionOf := range elections {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled(recipes.WithOperationTimeout(endOperationTimeout), recipes.WithSessionTimeout(time.Hour))
				own := electionOf(b, client, time.Minute, 0)
				require.NoError(b, own.start())
				bubble.Pass(bubble.Moment)
				require.True(b, own.leads())
				b.Srv.Stop(b.Srv.Addr())
				bubble.Pass(bubble.Moment)
				start := time.Now()
				require.ErrorIs(b, own.close(), recipes.ErrNodeNotDeleted)
				require.Equal(b, endOperationTimeout, time.Since(start))
				require.NoError(b, b.Srv.Restart(b.Srv.Addr()))
				bubble.Pass(10 * time.Second)
				b.Srv.RequireIdle(b)
			})
		})
	}
}
