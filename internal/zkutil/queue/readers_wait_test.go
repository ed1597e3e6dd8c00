package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// crowd starts n acquisitions of separate clients, which wait in this order.
func crowd(b *bubble.Bubble, n int, pick func(read, write *rwlock.Lock) *rwlock.Lock) []<-chan bubble.Outcome[*recipes.Lease] {
	b.Helper()
	var waiting []<-chan bubble.Outcome[*recipes.Lease]
	for range n {
		waiting = append(waiting, bubble.Waiting(b, b.Context(), pick(locks.ReadWrite(b, b.Client())).Acquire))
	}
	return waiting
}

// The release of a writer wakes only the readers that it admits, without a request of theirs. No reader that queued after a
// writer overtakes it.
func TestReleaseWakesThoseItAdmits(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		_, write := locks.ReadWrite(b, b.Client(recipes.WithSessionTimeout(time.Hour)))
		writer := bubble.Acquire(b, write.Acquire)
		first := crowd(b, 5, locks.Reading)
		between := crowd(b, 1, locks.Writing)
		second := crowd(b, 5, locks.Reading)
		bubble.Pass(4 * time.Second) // all watch their own znodes now
		log := b.Srv.Observe()
		b.Release(writer)
		for _, waiting := range first {
			lease := bubble.Granted(b, waiting)
			defer func() { _ = lease.Release() }()
		}
		require.Equal(b, []zktest.Op{zktest.OpDelete}, bubble.Requests(log), "nobody asks for anything")
		bubble.Pass(time.Second)
		require.Empty(b, between[0])
		for _, waiting := range second {
			require.Empty(b, waiting, "a reader has overtaken the writer")
		}
		require.Equal(b, []zktest.Op{zktest.OpDelete}, bubble.Requests(log))
	})
}

// A reader sends no request while other readers arrive and leave.
func TestReadersDoNotDisturbEachOther(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		_, write := locks.ReadWrite(b, b.Client(recipes.WithSessionTimeout(time.Hour)))
		writer := bubble.Acquire(b, write.Acquire)
		waiting := crowd(b, 1, locks.Reading)
		ctx, cancel := context.WithCancel(b.Context())
		read, _ := locks.ReadWrite(b, b.Client())
		gone := bubble.Waiting(b, ctx, read.Acquire)
		log := b.Srv.Observe()
		cancel()
		require.ErrorIs(b, bubble.Receive(b, gone).Err, context.Canceled)
		bubble.Pass(time.Second)
		require.Equal(b, []zktest.Op{zktest.OpDelete}, bubble.Requests(log))
		b.Release(writer)
		b.Release(bubble.Granted(b, waiting[0]))
	})
}

// A writer that waits for readers is woken only by the one that it watches, once if they leave in the order of arrival.
// Contenders behind the writer are not woken at all.
func TestWriterIsWokenByTheReaderThatItWatches(t *testing.T) {
	const readers = 5
	for name, c := range map[string]struct{ first, step, looks int }{
		"the first one leaves first": {0, 1, 1}, "the last one leaves first": {readers - 1, -1, readers},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				var held []*recipes.Lease
				for range readers {
					read, _ := locks.ReadWrite(b, b.Client(recipes.WithSessionTimeout(time.Hour)))
					held = append(held, bubble.Acquire(b, read.Acquire))
				}
				client := b.Client(recipes.WithSessionTimeout(time.Hour))
				_, write := locks.ReadWrite(b, client)
				waiting := bubble.Waiting(b, b.Context(), write.Acquire)
				behind := crowd(b, 3, locks.Reading)
				bubble.Pass(4 * time.Second) // all watch their own znodes now
				log := b.Srv.Observe()
				for i := c.first; i >= 0 && i < readers; i += c.step {
					require.Empty(b, waiting)
					b.Release(held[i])
					bubble.Pass(time.Second)
				}
				writer := bubble.Granted(b, waiting)
				require.Equal(b, c.looks, looksAlone(b, log, client))
				b.Release(writer)
				for _, next := range behind {
					b.Release(bubble.Granted(b, next))
				}
			})
		})
	}
}

// looksAlone counts a client's listings of the queue, while the others send nothing but deletions, heartbeats, and the reads
// that check for missed events. A woken waiter lists the queue.
func looksAlone(b *bubble.Bubble, log *zktest.Log, client *recipes.Client) (looks int) {
	b.Helper()
	for _, r := range log.Requests() {
		switch {
		case r.Op == zktest.OpDelete || r.Op == zktest.OpPing || r.Op == zktest.OpMulti || r.Op == zktest.OpGetData:
		case r.Session != client.Conn().SessionID():
			require.Fail(b, "woken for nothing", "%v", r)
		case r.Op == zktest.OpGetChildren2:
			looks++
		}
	}
	return looks
}

// A reader waits only for writers with lower numbers (kazoo 649: it waits for a later one, which waits for the reader).
func TestLaterWriterDoesNotBlockAReader(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		_, write := locks.ReadWrite(b, b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		reader := crowd(b, 1, locks.Reading)
		later := crowd(b, 1, locks.Writing)
		b.Release(writer)
		granted := bubble.Granted(b, reader[0])
		require.Empty(b, later[0])
		b.Release(granted)
		b.Release(bubble.Granted(b, later[0]))
	})
}

// A writer between two readers gives up. The reader behind it is granted, if no other contender blocks it.
func TestWriterGivesUp(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, _ := locks.ReadWrite(b, b.Client())
		reader := bubble.Acquire(b, read.Acquire)
		_, write := locks.ReadWrite(b, b.Client())
		ctx, cancel := context.WithCancel(b.Context())
		giving := bubble.Waiting(b, ctx, write.Acquire)
		behind := crowd(b, 1, locks.Reading)
		cancel()
		var wait *recipes.WaitError
		require.ErrorAs(b, bubble.Receive(b, giving).Err, &wait)
		require.Equal(b, 2, wait.Position)
		require.Equal(b, reader.Path(), wait.Holder.Path)
		granted := bubble.Granted(b, behind[0])
		b.Stands(reader)
		b.Release(reader, granted)
	})
}

// Our znode is deleted, or our session expires, while we wait. We join again at the tail. In CURATOR-307, this is an
// index error.
func TestLostPosition(t *testing.T) {
	for name, pick := range map[string]func(read, write *rwlock.Lock) *rwlock.Lock{"reader": locks.Reading, "writer": locks.Writing} {
		for _, isExpiry := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					_, write := locks.ReadWrite(b, b.Client())
					writer := bubble.Acquire(b, write.Acquire)
					client := b.Troubled()
					waiting := bubble.Waiting(b, b.Context(), pick(locks.ReadWrite(b, client)).Acquire)
					own := b.Queue(locks.Path)[1]
					if isExpiry {
						b.ExpireUnheard(client)
					} else {
						b.Srv.Delete(own)
					}
					bubble.Pass(10 * time.Second)
					require.Empty(b, waiting)
					queue := b.Queue(locks.Path)
					require.Len(b, queue, 2)
					require.NotEqual(b, own, queue[1])
					b.Release(writer)
					b.Release(bubble.Granted(b, waiting))
				})
			})
		}
	}
}

// Each of the two leases of a downgrade reports a loss with its cause, and the loss poisons nothing.
func TestLoss(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		read, write := locks.ReadWrite(b, client)
		writer := bubble.Acquire(b, write.Acquire)
		reader := locks.Under(b, read, writer)
		b.Srv.Delete(writer.Path())
		require.ErrorIs(b, b.Cause(writer), recipes.ErrNodeDeleted)
		b.Stands(reader)
		require.ErrorIs(b, writer.Release(), recipes.ErrNodeDeleted)
		_, err := write.Acquire(reader.Context())
		require.ErrorIs(b, err, rwlock.ErrUpgrade)
		b.ExpireUnheard(client)
		require.ErrorIs(b, b.Cause(reader), recipes.ErrSessionLost)
		_, err = read.Acquire(reader.Context())
		require.ErrorIs(b, err, recipes.ErrSessionLost)
		require.ErrorIs(b, reader.Release(), recipes.ErrSessionLost)
		b.Release(bubble.Acquire(b, write.Acquire))
	})
}

// The reader of a client that falls silent ends before a writer of another client begins, and a writer before readers.
func TestLossBeforeTheNextGrant(t *testing.T) {
	for name, picks := range map[string][2]func(read, write *rwlock.Lock) *rwlock.Lock{
		"reader before writer": {locks.Reading, locks.Writing}, "writer before reader": {locks.Writing, locks.Reading},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				holder := b.Troubled()
				lease := bubble.Acquire(b, picks[0](locks.ReadWrite(b, holder)).Acquire)
				next := bubble.Waiting(b, b.Context(), picks[1](locks.ReadWrite(b, b.Client())).Acquire)
				b.Srv.Partition(holder.Conn().SessionID())
				end := make(chan time.Time, 1)
				context.AfterFunc(lease.Context(), func() { end <- time.Now() })
				got := bubble.Receive(b, next)
				require.NoError(b, got.Err)
				require.ErrorIs(b, context.Cause(lease.Context()), recipes.ErrSessionLost)
				require.Less(b, <-end, got.At)
				b.Release(got.Lease)
			})
		})
	}
}

// Both locks are revocable, and so is the read lock under the write lock.
func TestRevocation(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		heard := make(chan *recipes.Lease, 3)
		read, write := locks.ReadWrite(b, b.Client(), rwlock.WithRevocationListener(func(lease *recipes.Lease) { heard <- lease }))
		revoker := revoke.New(b.Client())
		writer := bubble.Acquire(b, write.Acquire)
		reader := locks.Under(b, read, writer)
		for _, lease := range []*recipes.Lease{writer, reader} {
			require.NoError(b, revoker.AttemptRevoke(b.Context(), lease.Path()))
			<-lease.Revoked()
			require.Same(b, lease, <-heard)
			b.Stands(writer, reader)
		}
		readers, err := read.Participants(b.Context())
		require.NoError(b, err)
		require.True(b, readers[0].Revoked)
		b.Release(writer, reader)
		plain := bubble.Acquire(b, read.Acquire)
		require.NoError(b, revoker.AttemptRevoke(b.Context(), plain.Path()))
		require.Same(b, plain, <-heard)
		b.Release(plain)
	})
}

// The client is closed while it holds and waits.
func TestClose(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		read, write := locks.ReadWrite(b, client)
		reader := bubble.Acquire(b, read.Acquire)
		waiting := bubble.Waiting(b, b.Context(), write.Acquire)
		require.NoError(b, client.Close())
		require.ErrorIs(b, b.Cause(reader), recipes.ErrClosed)
		require.ErrorIs(b, bubble.Receive(b, waiting).Err, recipes.ErrClosed)
		for _, lock := range []*rwlock.Lock{read, write} {
			_, err := lock.TryAcquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrClosed)
		}
		require.Empty(b, b.Queue(locks.Path))
	})
}
