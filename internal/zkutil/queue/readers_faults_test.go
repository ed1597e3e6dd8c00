package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// faults makes the n-th request of an operation meet the n-th fault, and all later requests the last one. It returns the
// number of requests.
func faults(b *bubble.Bubble, op zktest.Op, faults ...zktest.Fault) (count func() int) {
	n := 0
	remove := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op != op {
			return zktest.Fault{}
		}
		n++
		return faults[min(n, len(faults))-1]
	})
	return func() int {
		remove()
		return n
	}
}

// Two faults meet the create of a downgrade. The first loses its answer, the second refuses the next attempt. For all pairs,
// the znode of the first attempt is deleted, and the writer continues.
func TestDowngradeIsRefusedAfterALostAnswer(t *testing.T) {
	for name, lost := range map[string]zktest.Loss{"lost answer": zktest.ReplyLost, "lost request": zktest.RequestLost} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				read, write := locks.ReadWrite(b, b.Client())
				writer := bubble.Acquire(b, write.Acquire)
				count := faults(b, zktest.OpCreate, zktest.Fault{Lost: lost}, zktest.Fault{Refusal: zktest.RefuseNoAuth})
				_, err := read.Acquire(writer.Context())
				require.ErrorIs(b, err, zk.ErrNoAuth)
				require.Equal(b, 2, count())
				bubble.Pass(time.Second)
				require.Equal(b, []string{writer.Path()}, b.Queue(locks.Path))
				b.Stands(writer)
				b.Release(locks.Under(b, read, writer), writer)
				require.Empty(b, b.Queue(locks.Path))
			})
		})
	}
}

// The create of a downgrade fails, and a server executes its lost request later. The znode is deleted all the same.
func TestLateCreateOfAFailedDowngrade(t *testing.T) {
	lost := zktest.Fault{Lost: zktest.RequestLost}
	for name, isAbandoned := range map[string]bool{"refused when sent again": false, "abandoned before its answer was lost": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				read, write := locks.ReadWrite(b, b.Client())
				writer := bubble.Acquire(b, write.Acquire)
				ctx, cancel := context.WithCancel(writer.Context())
				defer cancel()
				late := ""
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					switch {
					case r.Op != zktest.OpCreate:
						return zktest.Fault{}
					case isAbandoned:
						cancel()
						bubble.Pause(time.Second)
					case late != "":
						return zktest.Fault{Refusal: zktest.RefuseNoAuth}
					}
					late = r.Path
					return lost
				})
				_, err := read.Acquire(ctx)
				require.Error(b, err)
				bubble.Pass(4 * time.Second)
				require.Equal(b, []string{writer.Path()}, b.Queue(locks.Path))
				b.Srv.Put(late, nil)
				bubble.Pass(time.Minute)
				require.Equal(b, []string{writer.Path()}, b.Queue(locks.Path))
				b.Release(writer)
			})
		})
	}
}

// The answer about the new znode is lost, and the next attempt finds it; then the list is refused.
func TestDowngradeMayNotListAfterALostAnswer(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		created := faults(b, zktest.OpCreate, zktest.Fault{Lost: zktest.ReplyLost}, zktest.Fault{})
		listed := faults(b, zktest.OpGetChildren2, zktest.Fault{Refusal: zktest.RefuseNoAuth})
		_, err := read.Acquire(writer.Context())
		require.ErrorIs(b, err, zk.ErrNoAuth)
		require.Equal(b, []int{2, 1}, []int{created(), listed()})
		bubble.Pass(time.Second)
		require.Equal(b, []string{writer.Path()}, b.Queue(locks.Path))
		b.Stands(writer)
		b.Release(writer)
	})
}

// The session expires while the read lock is being acquired: there is no second attempt, because the write lock is lost as well.
func TestDowngradeEndsWithItsWriter(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetChildren2, zktest.OpGetData} {
		t.Run(op.String(), func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled()
				read, write := locks.ReadWrite(b, client)
				writer := bubble.Acquire(b, write.Acquire)
				session, count := client.Conn().SessionID(), 0
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == op {
						if count++; count == 1 {
							b.Srv.Expire(session)
						}
					}
					return zktest.Fault{}
				})
				log := b.Srv.Observe()
				_, err := read.Acquire(context.WithoutCancel(writer.Context())) // which does not end with the write lock
				require.ErrorIs(b, err, recipes.ErrSessionLost)
				require.Positive(b, count)
				require.Equal(b, 1, log.Count(zktest.OpCreate), "no second attempt")
				bubble.Pass(time.Second)
				require.Empty(b, b.Queue(locks.Path))
			})
		})
	}
}

// A failed downgrade leaves no entry of the write lock. Its release lets the next contender in at once.
func TestFailedDowngradeKeepsNoEntry(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		_, otherWrite := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
		count := faults(b, zktest.OpCreate, zktest.Fault{Refusal: zktest.RefuseNoAuth})
		_, err := read.Acquire(writer.Context())
		require.ErrorIs(b, err, zk.ErrNoAuth)
		require.Equal(b, 1, count())
		start := time.Now()
		b.Release(writer)
		b.Release(bubble.Granted(b, queued))
		require.Equal(b, start, time.Now())
	})
}

// The participants of one lock are read a few at a time. However many contenders of the other lock stand between, and however
// many leave while they are read, all the others are there, at once.
func TestParticipantsBesideManyOfTheOther(t *testing.T) {
	for _, others := range []int{15, 16, 17, 33, 100} {
		bubble.Run(t, func(b *bubble.Bubble) {
			read, write := locks.ReadWrite(b, b.Client())
			for i := range others {
				b.Srv.Put(fmt.Sprintf("%s/_c_00000000-0000-0000-0000-%012d-__WRIT__%010d", locks.Path, i, i), nil)
				b.Srv.Put(fmt.Sprintf("%s/_c_00000000-0000-0000-0000-%012d-__READ__%010d", locks.Path, i, others+i), nil)
			}
			for name, lock := range map[string]*rwlock.Lock{"readers": read, "writers": write} {
				start := time.Now()
				shown, err := lock.Participants(b.Context())
				require.NoError(b, err)
				require.Len(b, shown, others, "%d %s", others, name)
				require.Equal(b, start, time.Now())
			}
			b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpGetData {
					b.Srv.Delete(r.Path)
				}
				return zktest.Fault{}
			})
			shown, err := read.Participants(b.Context())
			require.NoError(b, err)
			require.Empty(b, shown, "all have left")
		})
	}
}

// The text right before the number decides whether a contender reads or writes. The rest of its name does not matter.
func TestMarkerIsThatBeforeTheNumber(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		writer, reader := locks.Path+"/__READ__-of-x-__WRIT__0000000000", locks.Path+"/__WRIT__-of-y-__READ__0000000001"
		b.Srv.Put(writer, nil)
		b.Srv.Put(reader, nil)
		for lock, want := range map[*rwlock.Lock]string{read: reader, write: writer} {
			shown, err := lock.Participants(b.Context())
			require.NoError(b, err)
			require.Len(b, shown, 1)
			require.Equal(b, want, shown[0].Path)
		}
		_, err := read.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "a writer is ahead")
		b.Srv.Delete(writer)
		b.Release(bubble.Acquire(b, read.TryAcquire))
		_, err = write.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "a reader is ahead")
	})
}
