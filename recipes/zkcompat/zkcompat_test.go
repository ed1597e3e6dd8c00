package zkcompat_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zkcompat"
)

const path = "/locks/a"

var open = zk.WorldACL(zk.PermAll)

// locker has the methods that both locks share.
type locker interface {
	Lock() error
	LockWithData(data []byte) error
	Unlock() error
}

var (
	_ locker = (*zk.Lock)(nil)
	_ locker = (*zkcompat.Lock)(nil)
)

func oldLock(b *bubble.Bubble) locker { return zk.NewLock(b.Client().Conn(), path, open) }
func newLock(b *bubble.Bubble) locker { return zkcompat.NewLock(b.Client(), path, open) }

// locking locks in a goroutine, which ends with the call.
func locking(lock locker) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lock.Lock() }()
	return done
}

// In a rolling upgrade, the old lock waits for the new one, and the new one for the old.
func TestExcludesTheOldLock(t *testing.T) {
	makers := map[string]func(*bubble.Bubble) locker{"old": oldLock, "new": newLock}
	for first, makeFirst := range makers {
		for second, makeSecond := range makers {
			t.Run(first+" before "+second, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					one, two := makeFirst(b), makeSecond(b)
					for range 3 {
						require.NoError(b, one.Lock())
						waiting := locking(two)
						bubble.Pass(time.Minute)
						require.Empty(b, waiting, "the lock is held")
						require.NoError(b, one.Unlock())
						require.NoError(b, <-waiting)
						require.Len(b, b.Srv.Children(path), 1)
						require.NoError(b, two.Unlock())
						one, two = two, one
					}
					require.Empty(b, b.Srv.Children(path))
				})
			})
		}
	}
}

// Old and new locks of many clients have one holder at a time.
func TestCrowdOfBothLocks(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const each, rounds = 4, 5
		crowd := &crowd{}
		done := make(chan error, 2*each)
		for range each {
			for _, lock := range []locker{oldLock(b), newLock(b)} {
				go func() { // ends with its rounds; received below
					var err error
					for range rounds {
						err = errors.Join(err, crowd.work(lock))
					}
					done <- err
				}()
			}
		}
		for range 2 * each {
			require.NoError(b, <-done)
		}
		require.Equal(b, 2*each*rounds, crowd.total)
	})
}

// crowd counts holders. The lock guards the fields.
type crowd struct{ holders, total int }

// work holds the lock for a moment, and fails if there is another holder.
func (c *crowd) work(lock locker) error {
	if err := lock.Lock(); err != nil {
		return err
	}
	c.holders++
	c.total++
	isAlone := c.holders == 1
	bubble.Pause(time.Millisecond)
	isAlone = isAlone && c.holders == 1
	c.holders--
	if err := lock.Unlock(); err != nil || isAlone {
		return err
	}
	return errors.New("two holders")
}

// The end of the client ends a wait, and leaves no contender.
func TestCloseEndsAWait(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		require.NoError(b, oldLock(b).Lock())
		client := b.Client()
		waiting := locking(zkcompat.NewLock(client, path, open))
		bubble.Pass(time.Second)
		require.Len(b, b.Srv.Children(path), 2)
		require.NoError(b, client.Close())
		require.ErrorIs(b, <-waiting, recipes.ErrClosed)
		require.Len(b, b.Srv.Children(path), 1)
	})
}

// The data of the znode is that of the caller alone, as programs that parse it expect.
func TestData(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock := newLock(b)
		for _, data := range [][]byte{nil, {}, []byte(`{"host":"web-1"}`), {0, 0xff}} {
			require.NoError(b, lock.LockWithData(data))
			znodes := b.Queue(path)
			require.Len(b, znodes, 1)
			got, _, exists := b.Srv.Get(znodes[0])
			require.True(b, exists)
			require.Equal(b, string(data), string(got))
			require.NoError(b, lock.Unlock())
		}
		require.ErrorIs(b, lock.LockWithData([]byte(strings.Repeat("x", 64<<10+1))), recipes.ErrInvalidArgument)
		require.NoError(b, lock.Lock(), "nothing is stuck")
		require.NoError(b, lock.Unlock())
	})
}

// Misuse has the errors of zk.Lock.
func TestMisuse(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		for _, lock := range []locker{oldLock(b), newLock(b)} {
			require.ErrorIs(b, lock.Unlock(), zk.ErrNotLocked)
			require.NoError(b, lock.Lock())
			require.ErrorIs(b, lock.Lock(), zk.ErrDeadlock)
			require.NoError(b, lock.Unlock())
			require.ErrorIs(b, lock.Unlock(), zk.ErrNotLocked)
		}
		holder, lock := newLock(b), newLock(b)
		require.NoError(b, holder.Lock())
		waiting := locking(lock)
		bubble.Pass(time.Second)
		require.ErrorIs(b, lock.Lock(), zk.ErrDeadlock, "a Lock is one contender")
		require.ErrorIs(b, lock.Unlock(), zk.ErrNotLocked)
		require.NoError(b, holder.Unlock())
		require.NoError(b, <-waiting)
		require.NoError(b, lock.Unlock())
		require.ErrorIs(b, zkcompat.NewLock(b.Client(), "a", nil).Lock(), recipes.ErrInvalidPath)
		require.ErrorIs(b, zkcompat.NewLock(nil, path, nil).Lock(), recipes.ErrInvalidArgument)
	})
}

// A lock that was lost says so, and can be locked again, with an Unlock before or without.
func TestLost(t *testing.T) {
	for _, unlocks := range []bool{true, false} {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Troubled()
			lock := zkcompat.NewLock(client, path, open)
			require.Empty(b, lock.Lost())
			select {
			case <-lock.Lost():
				require.Fail(b, "it was not locked yet")
			default:
			}
			require.NoError(b, lock.Lock())
			lost := lock.Lost()
			other := newLock(b)
			waiting := locking(other)
			bubble.Pass(bubble.Moment)
			b.ExpireUnheard(client)
			<-lost
			require.NoError(b, <-waiting)
			require.NoError(b, other.Unlock())
			if unlocks {
				require.ErrorIs(b, lock.Unlock(), recipes.ErrSessionLost)
				require.ErrorIs(b, lock.Unlock(), zk.ErrNotLocked)
			}
			<-lock.Lost() // still
			require.NoError(b, lock.Lock())
			select {
			case <-lock.Lost():
				require.Fail(b, "the new lock is held")
			default:
			}
			require.NoError(b, lock.Unlock())
			select {
			case <-lock.Lost():
				require.Fail(b, "Unlock is no loss")
			default:
			}
		})
	}
}

// The znodes have the ACL of the lock, parents included, and the client's ACL without one.
func TestACL(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		own := append(zk.DigestACL(zk.PermAll, "ann", "secret"), zk.WorldACL(zk.PermRead)...)
		client := b.Client(recipes.WithAuth("digest", []byte("ann:secret")), recipes.WithACL(zk.WorldACL(zk.PermAll)...))
		for dir, acl := range map[string][]zk.ACL{"/own": own, "/client": nil} {
			lock := zkcompat.NewLock(client, dir, acl)
			require.NoError(b, lock.Lock())
			want := own
			if acl == nil {
				want = open
			}
			require.Equal(b, want, b.Srv.ACL(dir))
			require.Equal(b, want, b.Srv.ACL(b.Queue(dir)[0]))
			require.NoError(b, lock.Unlock())
		}
	})
}

// The lock contends with a mutex of this library, too.
func TestBesideAMutex(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m, err := mutex.New(b.Client(), path)
		require.NoError(b, err)
		lock := newLock(b)
		require.NoError(b, lock.Lock())
		_, err = m.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		require.NoError(b, lock.Unlock())
		b.Release(bubble.Acquire(b, m.Acquire))
	})
}
