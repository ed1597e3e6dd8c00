package mutex_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// enoughAlone is after how many acquisitions with nobody in between a client no longer lists the queue.
const enoughAlone = 4

// settle acquires and releases until the client no longer lists the queue.
func (f *fixture) settle(m *mutex.InterProcessMutex) {
	f.Helper()
	for range enoughAlone {
		require.NoError(f, acquire(f.T, m).Release())
		pass(moment)
	}
}

// requests are the operations of one acquisition and its release.
func (f *fixture) requests(m *mutex.InterProcessMutex) []zktest.Op {
	f.Helper()
	log := f.srv.Observe()
	defer log.Stop()
	require.NoError(f, acquire(f.T, m).Release())
	return operations(log)
}

var (
	withList    = []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2, zktest.OpDelete}
	withoutList = []zktest.Op{zktest.OpCreate2, zktest.OpDelete}
)

// A client that is alone with a lock sends a create and a delete. Another one in between makes it list the queue again.
func TestAlone(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		m, other := f.mutex(client), f.mutex(f.client())
		for range enoughAlone {
			require.Subset(f, f.requests(m), withList)
			pass(moment)
		}
		for range 3 {
			require.Equal(f, withoutList, f.requests(m))
			require.Equal(f, withoutList, f.requests(f.mutex(client)), "another mutex of the client")

			require.NoError(f, acquire(f.T, other).Release())
			require.Equal(f, withList, f.requests(m), "the other was in between")
			for range enoughAlone - 1 {
				require.Equal(f, withList, f.requests(m))
			}
		}
		require.Equal(f, withoutList, f.requests(m))
		f.cutAndReconnect(client)
		for range enoughAlone {
			require.Subset(f, f.requests(m), withList, "the watch on the directory is gone with the connection")
			pass(moment)
		}
		require.Equal(f, withoutList, f.requests(m))
	})
}

// Where a client knows not enough to be the first, it is not.
func TestNotAlone(t *testing.T) {
	for name, come := range map[string]func(f *fixture, client *recipes.Client, m *mutex.InterProcessMutex){
		"somebody holds the lock": func(f *fixture, _ *recipes.Client, _ *mutex.InterProcessMutex) {
			acquire(f.T, f.mutex(f.client()))
		},
		"the client holds it itself": func(f *fixture, _ *recipes.Client, m *mutex.InterProcessMutex) {
			acquire(f.T, m)
		},
		"the client holds it, and others were there": func(f *fixture, client *recipes.Client, _ *mutex.InterProcessMutex) {
			require.NoError(f, acquire(f.T, f.mutex(f.client())).Release())
			acquire(f.T, f.mutex(client))
		},
		"somebody holds the lock, and the client gave up again and again": func(f *fixture, _ *recipes.Client, m *mutex.InterProcessMutex) {
			acquire(f.T, f.mutex(f.client()))
			for range 2 * enoughAlone {
				ctx, cancel := context.WithTimeout(f.Context(), time.Second)
				_, err := m.Acquire(ctx)
				cancel()
				require.ErrorIs(f, err, context.DeadlineExceeded)
				pass(moment)
			}
		},
		"a znode that somebody has named by hand": func(f *fixture, _ *recipes.Client, _ *mutex.InterProcessMutex) {
			f.srv.Put(lock+"/by-hand-lock-0000000000", nil)
		},
		"another directory of the same name, with the same numbers": func(f *fixture, _ *recipes.Client, _ *mutex.InterProcessMutex) {
			f.replaceDirectory(enoughAlone - 1)
			acquire(f.T, f.mutex(f.client()))
		},
		"another directory, while the client is away": func(f *fixture, client *recipes.Client, _ *mutex.InterProcessMutex) {
			over := f.outage()
			f.replaceDirectory(enoughAlone - 1)
			acquire(f.T, f.mutex(f.client()))
			states, stop := client.Subscribe()
			defer stop()
			over()
			for state := range states {
				if state == recipes.Reconnected {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client := f.troubled()
				m := f.mutex(client)
				f.settle(m)
				come(f, client, m)
				_, err := f.mutex(client).TryAcquire(f.Context())
				require.ErrorIs(f, err, recipes.ErrNotAcquired)
			})
		})
	}
}

// replaceDirectory deletes the lock's directory with all that is there, and makes another one that goes on with a number.
func (f *fixture) replaceDirectory(next int32) {
	f.srv.Delete(lock)
	f.srv.Put(lock, nil)
	f.srv.SetSequence(lock, next)
}

// A create without a list that fails half way leaves nothing behind, and the next attempt does not rest on it.
func TestAloneInterrupted(t *testing.T) {
	ends := map[string]struct {
		end     func(f *fixture, client *recipes.Client, cancel func())
		failure error // nil: the attempt goes on
		over    bool  // for the client
	}{
		"cancelled":       {end: func(_ *fixture, _ *recipes.Client, cancel func()) { cancel() }, failure: context.Canceled},
		"closed":          {end: func(f *fixture, client *recipes.Client, _ func()) { require.NoError(f, client.Close()) }, failure: recipes.ErrClosed, over: true},
		"cut off":         {end: func(f *fixture, client *recipes.Client, _ func()) { f.srv.Disconnect(client.Conn().SessionID()) }},
		"session expired": {end: func(f *fixture, client *recipes.Client, _ func()) { f.srv.Expire(client.Conn().SessionID()) }},
	}
	for name, tt := range ends {
		for _, lost := range []zktest.Loss{0, zktest.RequestLost, zktest.ReplyLost} {
			t.Run(fmt.Sprint(name, ", ", lost), func(t *testing.T) {
				inBubble(t, func(f *fixture) {
					client := f.troubled()
					m := f.mutex(client)
					f.settle(m)
					f.once(zktest.OpCreate2, zktest.Fault{Lost: lost, Delay: 100 * time.Millisecond})
					log := f.srv.Observe()
					ctx, cancel := context.WithCancel(f.Context())
					defer cancel()
					done := acquiring(ctx, m)
					pass(moment)
					require.Empty(f, done)
					require.Equal(f, []zktest.Op{zktest.OpCreate2}, operations(log), "it is the create without a list that is interrupted")
					tt.end(f, client, cancel)
					got := f.outcome(done)
					if tt.failure == nil {
						require.NoError(f, got.err)
						require.Equal(f, []string{got.lease.Path()}, f.queue())
						require.NoError(f, got.lease.Release())
					} else {
						require.ErrorIs(f, got.err, tt.failure)
					}
					pass(testclient.SessionTimeout)
					require.Empty(f, f.queue())
					other := acquire(f.T, f.mutex(f.client()))
					if !tt.over {
						_, err := m.TryAcquire(f.Context())
						require.ErrorIs(f, err, recipes.ErrNotAcquired)
					}
					require.NoError(f, other.Release())
				})
			})
		}
	}
}

// once does something to the next request of an operation.
func (f *fixture) once(op zktest.Op, fault zktest.Fault) {
	var isDone atomic.Bool
	f.srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op != op || isDone.Swap(true) {
			return zktest.Fault{}
		}
		return fault
	})
}

// What a client remembers counts for a session timeout.
func TestAloneLongAgo(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		f.settle(m)
		pass(testclient.SessionTimeout - time.Second)
		require.Equal(f, withoutList, f.requests(m))
		pass(testclient.SessionTimeout)
		log := f.srv.Observe()
		require.NoError(f, acquire(f.T, m).Release())
		require.Equal(f, 1, log.Count(zktest.OpGetChildren2))
		require.Equal(f, withoutList, f.requests(m))
	})
}

// A client that may not watch the directory lists the queue, and asks for the watch again and again.
func TestAloneWithoutAWatch(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		allow := f.srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == lock {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		log := f.srv.Observe()
		const times = 10 * (enoughAlone - 1)
		for range times {
			require.Subset(f, f.requests(m), withList)
			pass(moment)
		}
		require.Equal(f, times/(enoughAlone-1), log.Count(zktest.OpGetData))
		allow()
		f.settle(m)
		require.Equal(f, withoutList, f.requests(m))
	})
}

// Two callers who come together are numbered one behind the other. The second one waits.
func TestTwoAloneTogether(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		m := f.mutex(client)
		f.settle(m)
		defer f.srv.Delay(zktest.OpCreate2, time.Second)() // so that both have asked before either is answered
		first := acquiring(f.Context(), m)
		synctest.Wait()
		second := acquiring(f.Context(), f.mutex(client))
		lease := f.granted(first)
		pass(10 * time.Second)
		require.Empty(f, second)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(second).Release())
	})
}

// Whatever happens between the acquisitions of a client, it gets the lock if and only if nobody is ahead.
func TestAloneAmongStrangers(t *testing.T) {
	for seed := range uint64(200) {
		inBubble(t, func(f *fixture) {
			r := rand.New(rand.NewPCG(seed, 0))
			client, stranger := f.troubled(), f.client()
			last := 0 // number of the client
			for range 30 {
				f.settle(f.mutex(client))
				last += enoughAlone
				f.intrude(r, client, stranger, last)
				isFree := len(f.queue()) == 0
				lease, err := f.mutex(client).TryAcquire(f.Context())
				if !isFree {
					require.ErrorIs(f, err, recipes.ErrNotAcquired, "seed %d", seed)
					f.srv.Delete(lock)
					last = 0
					continue
				}
				require.NoError(f, err, "seed %d", seed)
				require.Equal(f, []string{lease.Path()}, f.queue(), "seed %d", seed)
				number, err := strconv.Atoi(lease.Path()[len(lease.Path())-10:])
				require.NoError(f, err)
				last = number
				require.NoError(f, lease.Release())
			}
		})
	}
}

// intrude has strangers, the servers or an operator do something while a client does not have the lock.
func (f *fixture) intrude(r *rand.Rand, client, stranger *recipes.Client, last int) {
	f.Helper()
	m := f.mutex(stranger)
	switch r.IntN(8) {
	case 0:
	case 1:
		acquire(f.T, m)
	case 2:
		require.NoError(f, acquire(f.T, m).Release())
	case 3:
		f.replaceDirectory(int32(last + r.IntN(3)))
		acquire(f.T, m)
	case 4:
		f.replaceDirectory(int32(last + r.IntN(3)))
	case 5:
		f.srv.Put(fmt.Sprintf("%s/by-hand-lock-%010d", lock, r.IntN(last+1)), nil)
	case 6:
		f.cutAndReconnect(client)
	case 7:
		f.expireUnheard(client)
		acquire(f.T, m)
	}
	pass(moment)
}
