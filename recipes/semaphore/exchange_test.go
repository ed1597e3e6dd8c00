package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// isExchange reports whether a request is the transaction that creates permits and deletes the turn.
func isExchange(r zktest.Request) bool {
	return r.Op == zktest.OpMulti && strings.HasPrefix(r.Path, locks.Permits+"/") && strings.HasSuffix(r.Path, "lease-")
}

// atExchange calls fault for the n-th exchange from now on, and returns the number of exchanges.
func atExchange(b *bubble.Bubble, n int, fault func() zktest.Fault) (count *int) {
	count = new(int)
	b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if !isExchange(r) {
			return zktest.Fault{}
		}
		if *count++; *count != n {
			return zktest.Fault{}
		}
		return fault()
	})
	return count
}

// After a lost answer the transaction is sent again. If the first one took effect, a search finds the permits. The turn is not in the way of
// a try.
func TestUnansweredExchange(t *testing.T) {
	for lost, sent := range map[zktest.Loss]int{zktest.RequestLost: 2, zktest.ReplyLost: 1, zktest.NoAnswer: 2} {
		for _, policy := range []recipes.ErrorPolicy{recipes.SessionErrorPolicy, recipes.StandardErrorPolicy} {
			acquire := func(b *bubble.Bubble, isTry bool, n int) {
				s := locks.SemaphoreOf(b, b.Troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithErrorPolicy(policy)), 3)
				b.Release(bubble.Acquire(b, s.Acquire))
				count := atExchange(b, 1, func() zktest.Fault { return zktest.Fault{Lost: lost} })
				take := s.AcquireN
				if isTry {
					take = s.TryAcquireN
				}
				held, err := take(b.Context(), n)
				require.NoError(b, err)
				require.GreaterOrEqual(b, *count, sent)
				requireHeld(b, held)
			}
			for _, n := range []int{1, 3} {
				bubble.Run(t, func(b *bubble.Bubble) { acquire(b, false, n) })
				bubble.Run(t, func(b *bubble.Bubble) { acquire(b, true, n) })
			}
		}
	}
}

// requireHeld requires leases to be all that is left of an acquisition, now and later, and releases them.
func requireHeld(b *bubble.Bubble, held []*recipes.Lease) {
	b.Helper()
	for range 2 {
		require.Empty(b, b.Queue(locks.Turns))
		require.Len(b, b.Queue(locks.Permits), len(held))
		for _, lease := range held {
			_, stat, ok := b.Srv.Get(lease.Path())
			require.True(b, ok)
			require.Equal(b, stat.Czxid, lease.FencingToken())
			b.Stands(lease)
		}
		bubble.Pass(3 * time.Minute)
	}
	locks.ReleaseAll(b, held)
	locks.RequireNoPermits(b)
}

// A transaction without an answer is executed only after the search. The transaction that is sent again is refused, and another search finds
// the permits.
func TestExchangeIsExecutedLate(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		s := locks.SemaphoreOf(b, client, 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		var first string
		count := 0
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if !isExchange(r) {
				return zktest.Fault{}
			}
			if count++; count == 1 {
				first = r.Path
				return zktest.Fault{Lost: zktest.RequestLost}
			}
			b.Srv.Seed(zktest.Znode{Path: first + "0000000009", Session: r.Session})
			b.Srv.Delete(b.Queue(locks.Turns)[0])
			return zktest.Fault{}
		})
		lease := bubble.Acquire(b, s.Acquire)
		require.Equal(b, 2, count)
		require.Equal(b, first+"0000000009", lease.Path())
		require.Equal(b, []string{lease.Path()}, b.Queue(locks.Permits))
		b.Stands(lease)
		b.Release(lease)
		locks.RequireNoPermits(b)
	})
}

// The turn is deleted before the transaction, which is refused. The request joins again, behind the other contender.
func TestTurnIsLostBeforeTheExchange(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s, other := locks.SemaphoreOf(b, b.Client(), 1), locks.SemaphoreOf(b, b.Client(), 1)
		b.Release(bubble.Acquire(b, s.Acquire))
		b.Release(bubble.Acquire(b, other.Acquire))
		var ahead <-chan bubble.Outcome[*recipes.Lease]
		count := atExchange(b, 1, func() zktest.Fault {
			ahead = bubble.Start(b.Context(), other.Acquire)
			bubble.Pause(bubble.Moment)
			b.Srv.Delete(b.Queue(locks.Turns)[0])
			return zktest.Fault{}
		})
		waiting := bubble.Waiting(b, b.Context(), s.Acquire)
		held := bubble.Granted(b, ahead)
		require.Equal(b, []string{held.Path()}, b.Queue(locks.Permits))
		require.Equal(b, 2, *count)
		b.Release(held)
		b.Release(bubble.Granted(b, waiting))
		locks.RequireNoPermits(b)
	})
}

// The context ends while the transaction is under way, for the first time or after a lost answer. Whether or not it is executed, no permit and
// no turn is left, and the bytes of both are free.
func TestContextEndsDuringTheExchange(t *testing.T) {
	all := []zktest.Loss{zktest.NothingLost, zktest.RequestLost, zktest.ReplyLost}
	for _, earlier := range all {
		for _, lost := range all {
			bubble.Run(t, func(b *bubble.Bubble) {
				s := locks.SemaphoreOf(b, b.Troubled(), 2)
				b.Release(bubble.Acquire(b, s.Acquire))
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				isFirst := earlier != zktest.NothingLost
				heal := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					switch {
					case isExchange(r) && isFirst:
						isFirst = false
						return zktest.Fault{Lost: earlier}
					case isExchange(r):
						time.AfterFunc(time.Millisecond, cancel)
						return zktest.Fault{Lost: lost, Delay: 100 * time.Millisecond}
					case r.Op == zktest.OpGetData: // so that the client does not learn of the end of its turn before
						return zktest.Fault{Delay: time.Second}
					default:
						return zktest.Fault{}
					}
				})
				_, err := s.AcquireN(ctx, 2)
				require.ErrorIs(b, err, context.Canceled)
				heal()
				bubble.Pass(time.Minute)
				locks.RequireNoPermits(b)
				locks.ReleaseAll(b, bubble.Acquire(b, locks.Many(s, 2)))
				locks.RequireNoPermits(b)
			})
		}
	}
}

// The session expires while the transaction is under way. The request starts over in the next session.
func TestSessionExpiresDuringTheExchange(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		s := locks.SemaphoreOf(b, client, 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		before := client.Conn().SessionID()
		count := atExchange(b, 1, func() zktest.Fault {
			b.Srv.Expire(before)
			return zktest.Fault{}
		})
		lease := bubble.Acquire(b, s.Acquire)
		require.Equal(b, 2, *count)
		require.NotEqual(b, before, client.Conn().SessionID())
		b.Stands(lease)
		b.Release(lease)
		locks.RequireNoPermits(b)
	})
}

// The server refuses the permits. The error says so, and neither a turn nor a permit is left.
func TestExchangeIsRefused(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		count := atExchange(b, 1, func() zktest.Fault { return zktest.Fault{Refusal: zktest.RefuseNoAuth} })
		_, err := s.Acquire(b.Context())
		require.ErrorContains(b, err, "no permission")
		require.Equal(b, 1, *count)
		locks.RequireNoPermits(b)
		b.Release(bubble.Acquire(b, s.Acquire))
	})
}

// The directory of the permits is reaped while it is empty, between the look at the permits and the transaction.
func TestDirectoryOfThePermitsIsReaped(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		count := atExchange(b, 1, func() zktest.Fault {
			b.Srv.Delete(locks.Permits)
			return zktest.Fault{}
		})
		b.Release(bubble.Acquire(b, s.Acquire))
		require.Equal(b, 2, *count)
		locks.RequireNoPermits(b)
	})
}

// Another program takes the last permit out of turn, just before the transaction. The request gives its permits back and waits for its next
// turn. A try fails.
func TestPermitsAreTakenOutOfTurn(t *testing.T) {
	for _, isTry := range []bool{false, true} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			const other = locks.Permits + "/other-lease-0000000000"
			atExchange(b, 1, func() zktest.Fault {
				b.Srv.Put(other, nil)
				return zktest.Fault{}
			})
			if isTry {
				_, err := s.TryAcquireN(b.Context(), 2)
				require.ErrorIs(b, err, recipes.ErrNotAcquired)
			} else {
				waiting := bubble.Waiting(b, b.Context(), locks.Many(s, 2))
				bubble.Pass(time.Minute)
				require.Empty(b, waiting)
				require.Equal(b, []string{other}, b.Queue(locks.Permits))
				b.Srv.Delete(other)
				locks.ReleaseAll(b, bubble.Granted(b, waiting))
			}
			b.Srv.Delete(other)
			locks.RequireNoPermits(b)
		})
	}
}

// One of several permits is deleted before the list behind the transaction. The leases that are returned are others.
func TestPermitIsLostDuringTheExchange(t *testing.T) {
	for _, lost := range []zktest.Loss{zktest.NothingLost, zktest.ReplyLost} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Troubled(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			atExchange(b, 1, func() zktest.Fault { return zktest.Fault{Lost: lost} })
			var deleted string
			b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				isBehind := r.Op == zktest.OpGetChildren2 && r.Path == locks.Permits || r.Op == zktest.OpSync
				if permits := b.Queue(locks.Permits); isBehind && deleted == "" && len(permits) == 2 {
					deleted = permits[1]
					b.Srv.Delete(deleted)
				}
				return zktest.Fault{}
			})
			held := bubble.Acquire(b, locks.Many(s, 2))
			require.NotEmpty(b, deleted)
			require.ElementsMatch(b, []string{held[0].Path(), held[1].Path()}, b.Queue(locks.Permits))
			b.Stands(held[0], held[1])
			locks.ReleaseAll(b, held)
			bubble.Pass(time.Minute)
			locks.RequireNoPermits(b)
		})
	}
}

// More permits than one transaction may create, because the ids are long, are created by several. If the last one fails, none is left.
func TestPermitsInSeveralTransactions(t *testing.T) {
	const n = 20
	for _, isRefused := range []bool{false, true} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(), n, semaphore.WithID(strings.Repeat("i", 64<<10)))
			b.Release(bubble.Acquire(b, s.Acquire))
			count := atExchange(b, 3, func() zktest.Fault {
				if isRefused {
					return zktest.Fault{Refusal: zktest.RefuseNoAuth}
				}
				return zktest.Fault{}
			})
			held, err := s.AcquireN(b.Context(), n)
			require.Equal(b, 3, *count)
			if isRefused {
				require.ErrorContains(b, err, "no permission")
			} else {
				require.NoError(b, err)
				require.Len(b, b.Queue(locks.Permits), n)
				locks.ReleaseAll(b, held)
			}
			locks.RequireNoPermits(b)
		})
	}
}
