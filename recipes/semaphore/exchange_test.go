package semaphore_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
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
				held, err := s.TryAcquireN(b.Context(), 2) // is not refused because of the permits that are being deleted
				require.NoError(b, err)
				locks.ReleaseAll(b, held)
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

// The directory of the permits is reaped while it is empty, between the look at the permits and the transaction, and twice more. The request
// keeps its turn.
func TestDirectoryOfThePermitsIsReaped(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		count := 0
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if isExchange(r) {
				if count++; count <= 3 {
					b.Srv.Delete(locks.Permits)
				}
			}
			if count == 2 && r.Op == zktest.OpGetChildren2 { // the list does not show it
				return zktest.Fault{Refusal: zktest.RefuseTimeout}
			}
			return zktest.Fault{}
		})
		log := b.Srv.Observe()
		b.Release(bubble.Acquire(b, s.Acquire))
		require.Equal(b, 4, count)
		require.Equal(b, 1, log.Count(zktest.OpCreate2)) // of the turn
		locks.RequireNoPermits(b)
	})
}

// Another program takes the last permit out of turn, just before the transaction. The request gives its permits back and waits for its next
// turn. A try fails, and so does a request whose retry policy allows no other attempt.
func TestPermitsAreTakenOutOfTurn(t *testing.T) {
	for attempts := range 3 { // 0: without limit
		isTry := attempts == 2
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: attempts})), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			const other = locks.Permits + "/other-lease-0000000000"
			atExchange(b, 1, func() zktest.Fault {
				b.Srv.Put(other, nil)
				return zktest.Fault{}
			})
			switch {
			case isTry:
				_, err := s.TryAcquireN(b.Context(), 2)
				require.ErrorIs(b, err, recipes.ErrNotAcquired)
			case attempts == 1:
				_, err := s.AcquireN(b.Context(), 2)
				require.ErrorContains(b, err, "others took the permits out of turn")
			default:
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

// One of several permits is deleted before the list behind the transaction, or before the other one is read. The leases that are returned
// are others.
func TestPermitIsLostDuringTheExchange(t *testing.T) {
	for _, c := range []struct {
		lost   zktest.Loss
		isRead bool // otherwise the list shows the loss
	}{{zktest.NothingLost, false}, {zktest.ReplyLost, false}, {zktest.ReplyLost, true}} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Troubled(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			atExchange(b, 1, func() zktest.Fault { return zktest.Fault{Lost: c.lost} })
			var deleted string
			b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				permits := b.Queue(locks.Permits)
				if deleted != "" || len(permits) < 2 {
					return zktest.Fault{}
				}
				isList := r.Op == zktest.OpGetChildren2 && r.Path == locks.Permits || r.Op == zktest.OpSync
				switch isOther := r.Op == zktest.OpGetData && r.Path == permits[1]; {
				case c.isRead && isOther:
					deleted = permits[0]
				case !c.isRead && isList:
					deleted = permits[1]
				default:
					return zktest.Fault{}
				}
				b.Srv.Delete(deleted)
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

// More permits than one transaction may create, because the ids are long, are created by several. After any lost answer, the request has
// all of its permits, ahead of the contender behind it. After a refusal, it has none.
func TestPermitsInSeveralTransactions(t *testing.T) {
	const n = 20
	long := semaphore.WithID(strings.Repeat("i", 64<<10))
	for at := 1; at <= 3; at++ {
		for _, fault := range []zktest.Fault{{}, {Lost: zktest.RequestLost}, {Lost: zktest.ReplyLost}, {Lost: zktest.NoAnswer}, {Refusal: zktest.RefuseNoAuth}} {
			bubble.Run(t, func(b *bubble.Bubble) {
				s, other := locks.SemaphoreOf(b, b.Troubled(recipes.WithSessionTimeout(time.Minute)), n, long), locks.SemaphoreOf(b, b.Client(), n)
				b.Release(bubble.Acquire(b, s.Acquire))
				b.Release(bubble.Acquire(b, other.Acquire))
				var behind <-chan bubble.Outcome[*recipes.Lease]
				count := atExchange(b, at, func() zktest.Fault {
					behind = bubble.Start(b.Context(), other.Acquire)
					bubble.Pause(bubble.Moment)
					return fault
				})
				held, err := s.AcquireN(b.Context(), n)
				if fault.Refusal != 0 {
					require.ErrorContains(b, err, "no permission")
				} else {
					require.NoError(b, err)
					require.GreaterOrEqual(b, *count, 3)
					require.Len(b, b.Queue(locks.Permits), n)
					bubble.Pass(time.Minute)
					require.Empty(b, behind)
					locks.ReleaseAll(b, held)
				}
				b.Release(bubble.Granted(b, behind))
				locks.RequireNoPermits(b)
			})
		}
	}
}

// A permit of the first of several slow transactions is deleted before the last one. No lease of a deleted znode is returned. If nothing is
// deleted, the permits are listed again together, not once each, after a reconnect, too.
func TestPermitIsLostBetweenTransactions(t *testing.T) {
	const n = 20
	for isLost, fault := range map[bool]zktest.Fault{true: {Delay: time.Second}, false: {Lost: zktest.RequestLost}} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(), n, semaphore.WithID(strings.Repeat("i", 64<<10)))
			b.Release(bubble.Acquire(b, s.Acquire))
			deleted := ""
			atExchange(b, 3, func() zktest.Fault {
				if isLost {
					deleted = b.Queue(locks.Permits)[0]
					b.Srv.Delete(deleted)
				}
				return fault
			})
			log := b.Srv.Observe()
			held := bubble.Acquire(b, locks.Many(s, n))
			require.Len(b, b.Queue(locks.Permits), n)
			for _, lease := range held {
				require.NotEqual(b, deleted, lease.Path())
			}
			if !isLost {
				require.Equal(b, 6, log.Count(zktest.OpGetChildren2)) // of the turns, and 5 of the permits
			}
			locks.ReleaseAll(b, held)
			locks.RequireNoPermits(b)
		})
	}
}

// The ACL of either directory forbids the transaction. The error names the directory.
func TestExchangeIsDenied(t *testing.T) {
	for text, acl := range map[string]struct {
		dir   string
		perms int32
	}{
		"no permission to create children of " + locks.Permits: {locks.Permits, zk.PermAll &^ zk.PermCreate},
		"no permission to delete children of " + locks.Turns:   {locks.Turns, zk.PermAll &^ zk.PermDelete},
	} {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Client()
			s := locks.SemaphoreOf(b, client, 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			_, err := client.Conn().SetACL(acl.dir, zk.WorldACL(acl.perms), -1)
			require.NoError(b, err)
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			_, err = s.AcquireN(ctx, 2)
			require.ErrorContains(b, err, text)
			require.Empty(b, b.Queue(locks.Permits))
		})
	}
}

// The context ends while a transaction is under way, and a transaction is executed after the search for its permits: the one before, which
// precedes the answer to the second, or the only one, which precedes the deletion of the turn. No permit is left.
func TestAbandonedExchangeIsExecutedLate(t *testing.T) {
	for late := 1; late <= 2; late++ {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Troubled(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			first, count := "", 0
			b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				execute := func() {
					b.Srv.Seed(zktest.Znode{Path: first + "0000000009", Session: r.Session})
					b.Srv.Delete(b.Queue(locks.Turns)[0])
				}
				switch {
				case isExchange(r):
					if count++; count < late {
						first = r.Path
						return zktest.Fault{Lost: zktest.RequestLost}
					}
					time.AfterFunc(time.Millisecond, cancel)
					if late == 2 {
						execute()
						return zktest.Fault{Delay: 100 * time.Millisecond}
					}
					first = r.Path
					bubble.Pause(100 * time.Millisecond)
					return zktest.Fault{Lost: zktest.RequestLost}
				case r.Op == zktest.OpDelete && count == 1 && late == 1 && strings.HasPrefix(r.Path, locks.Turns):
					bubble.Pause(time.Second) // until the search is over
					count++
					execute()
				}
				return zktest.Fault{}
			})
			_, err := s.Acquire(ctx)
			require.ErrorIs(b, err, context.Canceled)
			bubble.Pass(3 * time.Minute)
			require.Equal(b, 2, count)
			locks.RequireNoPermits(b)
		})
	}
}

// While the commit of the transaction is slow, a heartbeat behind it does not check the turn, which is deleted by then, but the root. A read of
// the turn that is answered meanwhile does not matter.
func TestHeartbeatBehindTheExchange(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		s := locks.SemaphoreOf(b, client, 1)
		b.Release(bubble.Acquire(b, s.Acquire))
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Op == zktest.OpGetChildren2 && r.Path == locks.Permits:
				b.Srv.SlowCommits(12 * time.Second)
				return zktest.Fault{Delay: session.WatchOwnAfter + time.Millisecond}
			case r.Op == zktest.OpGetData:
				return zktest.Fault{Delay: time.Second}
			default:
				return zktest.Fault{}
			}
		})
		log := b.Srv.Observe()
		lease := bubble.Acquire(b, s.Acquire)
		b.Srv.SlowCommits(0)
		bubble.Pass(time.Minute) // until the heartbeat is committed
		require.NotEmpty(b, log.Requests(zktest.OpGetData))
		isRootChecked := false
		for _, r := range log.Requests(zktest.OpMulti) {
			require.NotContains(b, r.Path, locks.Turns)
			isRootChecked = isRootChecked || r.Path == "/"
		}
		require.True(b, isRootChecked)
		b.Release(lease)
	})
}

// On servers that resume no session, it is not known whether the zxid of the answer is the czxid of the permits, which are read.
func TestTokensWithoutResumption(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		log := b.Srv.Observe()
		held := bubble.Acquire(b, locks.Many(locks.SemaphoreOf(b, b.Client(), 3), 3))
		var read []string
		for _, r := range log.Requests(zktest.OpGetData) {
			if strings.HasPrefix(r.Path, locks.Permits) {
				read = append(read, r.Path)
			}
		}
		require.ElementsMatch(b, b.Queue(locks.Permits), read)
		requireHeld(b, held)
	}, zktest.WithDialect(zktest.ClickHouseKeeper))
}

// A failed try returns when its turn and its permits are deleted, although the first deletion of each is lost: if no permit is free, or if another
// program takes a permit out of turn.
func TestFailedTryLeavesNothing(t *testing.T) {
	for _, isFree := range []bool{false, true} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Troubled(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			const other = locks.Permits + "/other-lease-0000000000"
			if !isFree {
				b.Srv.Put(other, nil)
			}
			deleted := map[string]bool{}
			b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				isFirst := r.Op == zktest.OpDelete && !deleted[r.Path]
				switch {
				case isExchange(r):
					b.Srv.Put(other, nil)
				case isFirst:
					deleted[r.Path] = true
					return zktest.Fault{Lost: zktest.RequestLost}
				}
				return zktest.Fault{}
			})
			_, err := s.TryAcquireN(b.Context(), 2)
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
			require.NotEmpty(b, deleted)
			require.Empty(b, b.Queue(locks.Turns))
			require.Equal(b, []string{other}, b.Queue(locks.Permits))
		})
	}
}

// The numbers of the permits have run out. None is granted, and none is left.
func TestNumbersOfThePermitsRunOut(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		b.Srv.SetSequence(locks.Permits, math.MaxInt32)
		_, err := s.AcquireN(b.Context(), 2)
		require.ErrorIs(b, err, recipes.ErrSequenceExhausted)
		locks.RequireNoPermits(b)
	})
}

// A transaction has at most 1,000 parts.
func TestThousandPermits(t *testing.T) {
	const n = 1000
	bubble.Run(t, func(b *bubble.Bubble) {
		count := atExchange(b, 1, func() zktest.Fault { return zktest.Fault{} })
		held := bubble.Acquire(b, locks.Many(locks.SemaphoreOf(b, b.Client(), n), n))
		require.Equal(b, 3, *count) // the first one found no directory
		require.Len(b, held, n)
	})
}
