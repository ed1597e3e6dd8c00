package mutex_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// longQueue is a lock with many contenders of other programs, and a few waiters of one client between them.
type longQueue struct {
	*fixture
	client  *recipes.Client
	others  *zk.Conn   // of the other programs
	ahead   [][]string // of each waiter: the znodes between it and the waiter before it
	waiters []<-chan result
}

// newLongQueue makes a queue in which 70 strangers are ahead of the first waiter, and three between two waiters.
func newLongQueue(f *fixture, waiters int, opts ...recipes.Option) *longQueue {
	f.Helper()
	q := &longQueue{fixture: f, client: f.client(opts...), others: f.client().Conn()}
	f.srv.Put(lock, nil)
	q.join(f.Context(), 70)
	for range waiters - 1 {
		q.join(f.Context(), 3)
	}
	return q
}

// join adds a waiter, and strangers ahead of it.
func (q *longQueue) join(ctx context.Context, strangers int) {
	q.Helper()
	q.ahead = append(q.ahead, nil)
	for range strangers {
		q.joinStranger(zk.WorldACL(zk.PermAll))
	}
	q.waiters = append(q.waiters, q.waiting(ctx, q.mutex(q.client)))
}

// joinStranger adds a stranger ahead of the next waiter.
func (q *longQueue) joinStranger(acl []zk.ACL) {
	path, err := q.others.Create(lock+"/stranger-lock-", nil, zk.FlagEphemeralSequential, acl)
	require.NoError(q, err)
	last := len(q.ahead) - 1
	q.ahead[last] = append(q.ahead[last], path)
}

// firstLease is that of the first waiter, once the strangers ahead of it are gone.
func (q *longQueue) firstLease() *recipes.Lease {
	q.Helper()
	q.leave(q.ahead[0]...)
	return q.granted(q.waiters[0])
}

// leave deletes the znodes of strangers.
func (q *longQueue) leave(paths ...string) {
	for _, path := range paths {
		q.srv.Delete(path)
		pass(moment)
	}
}

// In a long queue a waiter does not list the queue when its predecessor has gone: it asks for the few contenders that may be
// left since its client has held the lock.
func TestTurnInALongQueueWithoutAList(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		inBubble(t, func(f *fixture) {
			q := newLongQueue(f, 4)
			pass(waited)
			lease := q.firstLease()
			requests := f.srv.Observe()
			for i, next := range q.waiters[1:] {
				before := lease.FencingToken()
				require.NoError(f, lease.Release())
				q.leave(q.ahead[i+1]...)
				lease = f.granted(next)
				require.Greater(f, lease.FencingToken(), before)
				require.Equal(f, lease.Path(), f.queue()[0])
			}
			require.Zero(f, countLists(requests))
			require.Equal(f, len(q.waiters)-1, requests.Count(zktest.OpMultiRead))
			pass(time.Minute)
			f.stands(lease)
			require.NoError(f, lease.Release())
		})
	}
}

// A waiter takes no turn while a contender is left that came after the hold of its client.
func TestSomebodyIsLeftBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2)
		lease := q.firstLease()
		ahead, second := q.ahead[1], q.waiters[1]
		requests := f.srv.Observe()
		q.leave(ahead[2])
		require.Equal(f, 1, requests.Count(zktest.OpMultiRead))
		pass(time.Minute)
		require.Empty(f, second)
		require.NoError(f, lease.Release())
		q.leave(ahead[1])
		require.Equal(f, 2, requests.Count(zktest.OpMultiRead))
		pass(time.Minute)
		require.Empty(f, second)
		q.leave(ahead[0])
		require.NoError(f, f.granted(second).Release())
	})
}

// The hold of the same client, if it is left, keeps its next waiter waiting.
func TestTheHoldIsLeftBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2)
		lease := q.firstLease()
		requests := f.srv.Observe()
		q.leave(q.ahead[1]...)
		require.Equal(f, 1, requests.Count(zktest.OpMultiRead))
		f.goesAhead(lease, q.waiters[1])
	})
}

// Before its client has held the lock, a waiter in a long queue knows no contender that was the first, even if the client holds
// another lock. It lists the queue.
func TestNoFirstBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 1)
		other, err := mutex.New(q.client, "/locks/b")
		require.NoError(f, err)
		_, err = other.Acquire(f.Context())
		require.NoError(f, err)
		last := len(q.ahead[0]) - 1
		requests := f.srv.Observe()
		q.leave(q.ahead[0][last])
		require.Zero(f, requests.Count(zktest.OpMultiRead))
		pass(time.Minute)
		require.Empty(f, q.waiters[0])
		q.leave(q.ahead[0][:last]...)
		require.NoError(f, f.granted(q.waiters[0]).Release())
	})
}

// A waiter whose own znode has gone when it asks takes no turn: its successor is granted.
func TestOwnZnodeGoneWithThoseBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2)
		successor := f.waiting(f.Context(), f.mutex(f.client()))
		require.NoError(f, q.firstLease().Release())
		own := f.queue()[len(q.ahead[1])]
		f.before(zktest.OpMultiRead, q.client, func() { f.srv.Delete(own) })
		q.leave(q.ahead[1]...)
		f.goesAhead(f.granted(successor), q.waiters[1])
	})
}

// A contender whose znode may not be read counts as left. The Acquire fails, as it does behind such a contender.
func TestHiddenZnodeBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 1)
		q.ahead = append(q.ahead, nil)
		for _, acl := range [][]zk.ACL{zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermAll, "other", "secret"), zk.WorldACL(zk.PermAll)} {
			q.joinStranger(acl)
		}
		second := f.waiting(f.Context(), f.mutex(q.client))
		require.NoError(f, q.firstLease().Release())
		requests := f.srv.Observe()
		q.leave(q.ahead[1][0], q.ahead[1][2])
		require.ErrorIs(f, f.outcome(second).err, zk.ErrNoAuth)
		require.Equal(f, 1, requests.Count(zktest.OpMultiRead))
	})
}

// A client asks a server without multiRead once, or twice if the answer is lost when the server ends the connection. Later
// waiters of the client list the queue.
func TestServerWithoutMultiRead(t *testing.T) {
	for answers, asks := range map[bool]int{true: 1, false: 2} {
		inBubble(t, func(f *fixture) {
			var asked atomic.Int32
			remove := f.srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpMultiRead {
					return zktest.Fault{}
				}
				asked.Add(1)
				if answers {
					time.AfterFunc(time.Millisecond, func() { f.srv.Disconnect(r.Session) })
				} else {
					f.srv.Disconnect(r.Session)
				}
				return zktest.Fault{Refusal: zktest.RefuseUnimplemented}
			})
			defer remove()
			q := newLongQueue(f, 4)
			lease := q.firstLease()
			for i, next := range q.waiters[1:] {
				require.NoError(f, lease.Release())
				q.leave(q.ahead[i+1]...)
				lease = f.granted(next)
			}
			require.NoError(f, lease.Release())
			require.EqualValues(f, asks, asked.Load())
		})
	}
}

// The contenders that are left may have long data. The data are not read, because on a slow line they would hold up the
// heartbeats of a holder.
func TestLongDataBetween(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 1)
		q.ahead = append(q.ahead, nil)
		for range 15 {
			q.joinStranger(zk.WorldACL(zk.PermAll))
			q.srv.Put(q.ahead[1][len(q.ahead[1])-1], make([]byte, 64<<10))
		}
		second := f.waiting(f.Context(), f.mutex(q.client))
		lease := q.firstLease()
		pass(time.Minute)
		requests := f.srv.Observe()
		f.srv.SetBandwidth(64<<10, q.client.Conn().SessionID())
		for _, path := range slices.Backward(q.ahead[1][1:]) {
			q.leave(path)
			pass(time.Minute)
		}
		require.NotZero(f, requests.Count(zktest.OpMultiRead))
		f.stands(lease)
		q.leave(q.ahead[1][0])
		f.goesAhead(lease, second)
	})
}

// A client whose leases end with the connection does not risk it.
func TestNoMultiReadWhereASuspensionEnds(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		requests := f.srv.Observe()
		require.NoError(f, q.firstLease().Release())
		q.leave(q.ahead[1]...)
		require.NoError(f, f.granted(q.waiters[1]).Release())
		require.Zero(f, requests.Count(zktest.OpMultiRead))
	})
}

// A waiter that loses its connection while it asks lists the queue over the next connection. The next waiter asks again.
func TestThoseBetweenAcrossConnections(t *testing.T) {
	for _, lost := range []zktest.Loss{zktest.RequestLost, zktest.ReplyLost} {
		inBubble(t, func(f *fixture) {
			q := newLongQueue(f, 5)
			lease := q.firstLease()
			f.lose(zktest.OpMultiRead, q.client, lost)
			require.NoError(f, lease.Release())
			requests := f.srv.Observe()
			q.leave(q.ahead[1]...)
			lease = f.granted(q.waiters[1])
			require.Equal(f, lease.Path(), f.queue()[0])
			require.Equal(f, 1, requests.Count(zktest.OpMultiRead))
			require.NotZero(f, countLists(requests)) // or two: the first may meet the end of the connection
			for i, next := range q.waiters[2:] {
				if i == 1 {
					f.lose(zktest.OpMultiRead, q.client, lost) // not the second in a row
				}
				require.NoError(f, lease.Release())
				q.leave(q.ahead[i+2]...)
				lease = f.granted(next)
				require.Equal(f, i+2, requests.Count(zktest.OpMultiRead))
			}
			require.NoError(f, lease.Release())
		})
	}
}

// lose loses the next request of an operation of a client, or the answer.
func (f *fixture) lose(op zktest.Op, client *recipes.Client, lost zktest.Loss) {
	session := client.Conn().SessionID()
	drop := map[zktest.Loss]func(zktest.Op, int, ...int64) func(){
		zktest.RequestLost: f.srv.DropRequest, zktest.ReplyLost: f.srv.DropReply, zktest.AnswerLost: f.srv.DropAnswer,
	}[lost]
	f.Cleanup(drop(op, 1, session))
}

// An Acquire that is cancelled while it asks leaves no znode. However often that happens, its client asks again at the next turn.
func TestCancelWhileAsking(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 1)
		var cancels []func()
		for range 3 {
			ctx, cancel := context.WithCancel(f.Context())
			q.join(ctx, 1)
			cancels = append(cancels, cancel)
		}
		q.join(f.Context(), 1)
		require.NoError(f, q.firstLease().Release())
		requests := f.srv.Observe()
		stop := f.srv.Delay(zktest.OpMultiRead, time.Second, q.client.Conn().SessionID())
		for i, cancel := range cancels {
			q.leave(q.ahead[i+1]...)
			require.Empty(f, q.waiters[i+1])
			require.Equal(f, i+1, requests.Count(zktest.OpMultiRead))
			cancel()
			require.ErrorIs(f, f.outcome(q.waiters[i+1]).err, context.Canceled)
			pass(2 * time.Second) // nothing is held back any more
		}
		stop()
		last := len(q.waiters) - 1
		q.leave(q.ahead[last]...)
		require.NoError(f, f.granted(q.waiters[last]).Release())
		require.Empty(f, f.queue())
	})
}

// A waiter whose session expires while it asks joins again at the tail.
func TestExpiryWhileAsking(t *testing.T) {
	whileAsking(t, func(f *fixture, q *longQueue) {
		f.srv.Expire(q.client.Conn().SessionID())
		successor := f.granted(q.waiters[2])
		f.goesAhead(successor, q.waiters[1])
	})
}

// A waiter whose client is closed while it asks returns ErrClosed, and leaves no znode.
func TestCloseWhileAsking(t *testing.T) {
	whileAsking(t, func(f *fixture, q *longQueue) {
		require.NoError(f, q.client.Close())
		require.ErrorIs(f, f.outcome(q.waiters[1]).err, recipes.ErrClosed)
		require.NoError(f, f.granted(q.waiters[2]).Release())
		require.Empty(f, f.queue())
	})
}

// whileAsking calls fn while the second waiter of a long queue asks who is left ahead of it. The third waiter is of another
// client.
func whileAsking(t *testing.T, fn func(f *fixture, q *longQueue)) {
	t.Helper()
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2)
		q.waiters = append(q.waiters, f.waiting(f.Context(), f.mutex(f.client())))
		require.NoError(f, q.firstLease().Release())
		requests := f.srv.Observe()
		stop := f.srv.Delay(zktest.OpMultiRead, time.Second, q.client.Conn().SessionID())
		q.leave(q.ahead[1]...)
		require.Equal(f, 1, requests.Count(zktest.OpMultiRead))
		require.Empty(f, q.waiters[1])
		stop()
		fn(f, q)
	})
}

// A waiter that takes its turn without a list learns of a revocation that came before its turn.
func TestRevokedBeforeATurnWithoutAList(t *testing.T) {
	inBubble(t, func(f *fixture) {
		q := newLongQueue(f, 2)
		queue := f.queue()
		f.srv.Put(queue[len(queue)-1], []byte("__REVOKE__"))
		require.NoError(f, q.firstLease().Release())
		requests := f.srv.Observe()
		q.leave(q.ahead[1]...)
		lease := f.granted(q.waiters[1])
		require.Zero(f, countLists(requests))
		pass(moment)
		require.True(f, isRevoked(lease))
		require.NoError(f, lease.Release())
	})
}
