package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Curator's testDowngrading and testContendingDowngrading: the writer takes the read lock and releases the write lock. Readers
// get in, but a queued writer does not: it only watched the writer, and must not mistake the writer's end for its own turn.
func TestDowngrade(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		otherRead, otherWrite := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
		late := bubble.Waiting(b, b.Context(), otherRead.Acquire)

		reader := locks.Under(b, read, writer)
		require.Equal(b, writer.FencingToken(), reader.FencingToken())
		b.Stands(writer, reader)
		b.Release(locks.Under(b, write, reader)) // write re-entry continues under the read lock
		b.Release(writer)
		bubble.Pass(time.Minute)
		b.Stands(reader)
		require.Empty(b, queued, "the queued writer stays out")
		require.Empty(b, late, "and so does who is behind it")

		_, err := write.Acquire(reader.Context())
		require.ErrorIs(b, err, rwlock.ErrUpgrade)
		ended, end := context.WithCancel(reader.Context())
		end()
		_, err = write.Acquire(ended)
		require.ErrorIs(b, err, rwlock.ErrUpgrade, "also with a context that has ended")
		b.Release(locks.Under(b, read, reader))
		b.Release(reader)
		next := bubble.Granted(b, queued)
		require.Greater(b, next.FencingToken(), reader.FencingToken())
		b.Release(next)
		b.Release(bubble.Granted(b, late))
		require.Empty(b, b.Queue(locks.Path))
	})
}

// Both locks may be given back in either order, and the queued writer waits for both.
func TestDowngradeGivenBackFirst(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		_, otherWrite := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
		first, second := locks.Under(b, read, writer), locks.Under(b, read, writer)
		require.NotEqual(b, first.Path(), second.Path())
		again := locks.Under(b, read, first)
		require.Equal(b, first.Path(), again.Path(), "re-entry")
		b.Release(first, again)
		b.Stands(writer, second)
		b.Release(second)
		bubble.Pass(bubble.Moment)
		require.Empty(b, queued)
		b.Release(writer)
		b.Release(bubble.Granted(b, queued))
	})
}

// Curator's testThatDowngradingRespectsThreads: only the writer's own context takes the read lock under it.
func TestDowngradeIsOfTheOwnerAlone(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		read, write := locks.ReadWrite(b, client)
		writer := bubble.Acquire(b, write.Acquire)
		_, err := read.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		otherRead, _ := locks.ReadWrite(b, b.Client())
		_, err = otherRead.TryAcquire(writer.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "another client is another contender")
		sameRead, _ := locks.ReadWrite(b, client)
		b.Release(locks.Under(b, sameRead, writer)) // another value of the same lock
		b.Release(writer)
	})
}

// Curator's testThatUpgradingIsDisallowed, and the deadlock of two readers who both want to write, which is reported at
// once, without a request.
func TestUpgrade(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		otherRead, otherWrite := locks.ReadWrite(b, b.Client())
		first, second := bubble.Acquire(b, read.Acquire), bubble.Acquire(b, otherRead.Acquire)
		log, start := b.Srv.Observe(), time.Now()
		for _, acquire := range []func(context.Context) (*recipes.Lease, error){write.Acquire, write.TryAcquire} {
			_, err := acquire(first.Context())
			require.ErrorIs(b, err, rwlock.ErrUpgrade)
			require.ErrorContains(b, err, "write-lock: ")
		}
		require.ErrorIs(b, otherWrite.Do(second.Context(), nothing), rwlock.ErrUpgrade)
		require.Equal(b, start, time.Now())
		require.Empty(b, bubble.Requests(log))
		b.Stands(first, second)
		b.Release(first, second)
	})
}

func nothing(context.Context, *recipes.Lease) error { return nil }

// A context of a hold never gets another hold after the end, of either lock.
func TestContextOfAnEndedHold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		reader := bubble.Acquire(b, read.Acquire)
		b.Release(reader)
		writer := bubble.Acquire(b, write.Acquire)
		both := locks.Under(b, read, writer)
		b.Release(writer, both)
		log := b.Srv.Observe()
		for name, ctx := range map[string]context.Context{"read": reader.Context(), "write": writer.Context(), "both": both.Context()} {
			for _, lock := range []*rwlock.Lock{read, write} {
				_, err := lock.Acquire(ctx)
				require.ErrorIs(b, err, recipes.ErrReleased, name)
			}
		}
		require.Empty(b, bubble.Requests(log))
	})
}

// The error distinguishes a context of a hold that ended from an ended context of a hold.
func TestEndedContextOfAHold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		reader := locks.Under(b, read, writer)
		for _, ctx := range []context.Context{writer.Context(), reader.Context()} {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			for _, lock := range []*rwlock.Lock{read, write} {
				_, err := lock.Acquire(ctx)
				var wait *recipes.WaitError
				require.ErrorAs(b, err, &wait)
				require.ErrorIs(b, err, context.Canceled)
			}
		}
		b.Release(reader, writer)
		require.Empty(b, b.Queue(locks.Path))
	})
}

// The read lock under the write lock is granted or leaves nothing, whatever happens to its requests. The writer keeps its
// lock unless the session or the znode ends.
func TestDowngradeUnderFaults(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"lost request": {Lost: zktest.RequestLost}, "lost answer": {Lost: zktest.ReplyLost},
	} {
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData} {
			t.Run(name+" of "+op.String(), func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					read, write := locks.ReadWrite(b, b.Client())
					_, otherWrite := locks.ReadWrite(b, b.Client())
					writer := bubble.Acquire(b, write.Acquire)
					queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
					isDone := false
					b.Srv.Inject(func(r zktest.Request) zktest.Fault {
						if r.Op != op || isDone {
							return zktest.Fault{}
						}
						isDone = true
						return fault
					})
					reader := locks.Under(b, read, writer)
					require.True(b, isDone)
					require.Len(b, b.Queue(locks.Path), 3)
					b.Release(writer)
					bubble.Pass(time.Second)
					require.Empty(b, queued)
					b.Release(reader)
					b.Release(bubble.Granted(b, queued))
				})
			})
		}
	}
}

// A downgrade that its context ends leaves nothing, and the writer continues.
func TestDowngradeIsCancelled(t *testing.T) {
	for at := time.Duration(0); at < 500*time.Millisecond; at += 25 * time.Millisecond {
		bubble.Run(t, func(b *bubble.Bubble) {
			read, write := locks.ReadWrite(b, b.Client())
			writer := bubble.Acquire(b, write.Acquire)
			b.Srv.Delay(zktest.OpAny, 100*time.Millisecond)
			ctx, cancel := context.WithTimeout(writer.Context(), at)
			defer cancel()
			reader, err := read.Acquire(ctx)
			if err == nil {
				require.GreaterOrEqual(b, at, 300*time.Millisecond)
				b.Release(reader)
			} else {
				var wait *recipes.WaitError
				require.ErrorAs(b, err, &wait)
				require.Equal(b, at, wait.Waited)
			}
			bubble.Pass(time.Second)
			require.Equal(b, []string{writer.Path()}, b.Queue(locks.Path), "cancelled at %v", at)
			b.Stands(writer)
			b.Release(writer)
		})
	}
}

// Another client deletes the writer's znode, or its session expires, at each request of a downgrade. The read lock is
// granted only if the queue showed both znodes at once, and nothing is left.
func TestWriterIsLostDuringTheDowngrade(t *testing.T) {
	for n := range 4 {
		bubble.Run(t, func(b *bubble.Bubble) {
			loseWriter(b, n, recipes.ErrNodeDeleted, func(_ int64, writer string) { b.Srv.Delete(writer) })
		})
		bubble.Run(t, func(b *bubble.Bubble) {
			loseWriter(b, n, recipes.ErrSessionLost, func(session int64, _ string) { b.Srv.Expire(session) })
		})
	}
}

// loseWriter has a downgrade lose its writer at the n-th request.
func loseWriter(b *bubble.Bubble, n int, want error, lose func(session int64, writer string)) {
	b.Helper()
	client := b.Troubled()
	read, write := locks.ReadWrite(b, client)
	writer := bubble.Acquire(b, write.Acquire)
	_, otherWrite := locks.ReadWrite(b, b.Client())
	queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
	session, count := client.Conn().SessionID(), 0
	stop := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == session && r.Op != zktest.OpPing {
			if count++; count == n+1 {
				lose(session, writer.Path())
			}
		}
		return zktest.Fault{}
	})
	reader, err := read.Acquire(writer.Context())
	stop()
	require.Greater(b, count, n, "the downgrade has had so many requests")
	if err != nil {
		require.ErrorIs(b, err, want, "request %d", n)
	} else {
		require.NotErrorIs(b, want, recipes.ErrSessionLost)
		b.Stands(reader)
		bubble.Pass(time.Second)
		require.Empty(b, queued, "the read lock has the position of the writer")
		b.Release(reader)
	}
	require.ErrorIs(b, writer.Release(), want)
	b.Release(bubble.Granted(b, queued))
	require.Empty(b, b.Queue(locks.Path))
}

// The writer's znode is deleted and the next writer is granted, without a notification to the first writer's client. The read
// lock is too late: the queue no longer shows the writer's znode beside it.
func TestReadLockAfterTheEndOfTheWriteLock(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		read, write := locks.ReadWrite(b, client)
		writer := bubble.Acquire(b, write.Acquire)
		_, otherWrite := locks.ReadWrite(b, b.Client())
		queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
		b.Srv.DropEvent(1, client.Conn().SessionID())
		b.Srv.Delete(writer.Path())
		next := bubble.Granted(b, queued)
		b.Stands(writer) // it does not know
		_, err := read.TryAcquire(writer.Context())
		require.ErrorIs(b, err, recipes.ErrNodeDeleted)
		b.Stands(next)
		bubble.Pass(time.Second)
		require.Equal(b, []string{next.Path()}, b.Queue(locks.Path))
		b.Release(next)
	})
}

// The writer's znode is deleted in the moment of the grant. The read lock under it is refused at once, also for a caller
// that would wait.
func TestReadLockUnderADeletedWriter(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		b.Srv.Delete(writer.Path())
		start := time.Now()
		_, err := read.Acquire(writer.Context())
		require.ErrorIs(b, err, recipes.ErrNodeDeleted)
		require.Equal(b, start, time.Now())
		bubble.Pass(time.Second)
		require.Empty(b, b.Queue(locks.Path))
	})
}

// Another client deletes the writer's znode together with the directory, at each request of a downgrade. The error is the end
// of the write lock, as when only the znode is deleted.
func TestDirectoryIsDeletedDuringTheDowngrade(t *testing.T) {
	for n := range 2 {
		bubble.Run(t, func(b *bubble.Bubble) {
			read, write := locks.ReadWrite(b, b.Client())
			writer := bubble.Acquire(b, write.Acquire)
			deleteAll := func() {
				for _, path := range b.Queue(locks.Path) {
					b.Srv.Delete(path)
				}
				b.Srv.Delete(locks.Path)
			}
			requests := 0
			remove := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpCreate || r.Op == zktest.OpGetChildren2 {
					if requests == n {
						deleteAll()
					}
					requests++
				}
				return zktest.Fault{}
			})
			_, err := read.Acquire(writer.Context())
			remove()
			require.ErrorIs(b, err, recipes.ErrNodeDeleted, "at request %d", n)
			require.Greater(b, requests, n)
			b.Release(writer) // whose client does not know yet
			b.Release(bubble.Acquire(b, read.Acquire))
		})
	}
}
