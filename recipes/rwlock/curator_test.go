package rwlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// The remaining cases of Curator's tests. docs/evidence/curator-cases.md lists them all.

// testWaitingProcessKilledServer: a waiter keeps its position while its server is down.
func TestWaiterOutlivesItsServer(t *testing.T) {
	for name, pick := range map[string]func(read, write *rwlock.Lock) *rwlock.Lock{"reader": locks.Reading, "writer": locks.Writing} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				_, write := locks.ReadWrite(b, b.Client())
				writer := bubble.Acquire(b, write.Acquire)
				waiting := bubble.Waiting(b, b.Context(), pick(locks.ReadWrite(b, b.Troubled(recipes.WithSessionTimeout(time.Minute)))).Acquire)
				queue := b.Queue(locks.Path)
				over := b.Outage()
				b.Release(writer)
				over()
				lease := bubble.Granted(b, waiting)
				require.Equal(b, queue[1], lease.Path())
				b.Release(lease)
			})
		})
	}
}

// testContainerCleanup and testWithNamespace.
func TestNamespaceAndReapedParents(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client(recipes.WithNamespace("team")))
		for range 2 {
			writer := bubble.Acquire(b, write.Acquire)
			reader := locks.Under(b, read, writer)
			require.Len(b, b.Queue("/team"+locks.Path), 2)
			b.Release(writer, reader)
			b.Srv.Reap()
			b.Srv.Reap()
			require.Empty(b, b.Srv.Children("/team"))
		}
	})
}

// testLockPath: the znode is deleted with the session.
func TestZnodeIsDeletedWithTheSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		read, write := locks.ReadWrite(b, client)
		writer := bubble.Acquire(b, write.Acquire)
		reader := locks.Under(b, read, writer)
		b.ExpireUnheard(client)
		require.ErrorIs(b, b.Cause(writer), recipes.ErrSessionLost)
		require.ErrorIs(b, b.Cause(reader), recipes.ErrSessionLost)
		require.Empty(b, b.Queue(locks.Path))
		again := bubble.Acquire(b, write.Acquire)
		require.Greater(b, again.FencingToken(), writer.FencingToken())
		b.Release(again)
	})
}

// section is what a read-write lock guards.
type section struct {
	mu                         sync.Mutex // protects what is below
	readers, writers, together int
	faults                     []error
}

// stay enters the section as a reader or a writer, and leaves it.
func (s *section) stay(isWriter bool) {
	s.count(isWriter, 1)
	time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
	s.count(isWriter, -1)
}

func (s *section) count(isWriter bool, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isWriter {
		s.writers += by
	} else {
		s.readers += by
	}
	s.together = max(s.together, s.readers)
	if s.writers > 1 || s.writers == 1 && s.readers > 0 {
		s.faults = append(s.faults, errors.New("a writer is not alone"))
	}
}

// testBasic: many goroutines of several clients, of whom a writer is alone, and readers meet no writer.
func TestManyReadersAndWriters(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const clients, each = 3, 6
		var inside section
		done := make(chan error, clients*each)
		for i := range clients {
			read, write := locks.ReadWrite(b, b.Client())
			for j := range each {
				pick, isWriter := read, (i+j)%3 == 0
				if isWriter {
					pick = write
				}
				go func() { // ends with its rounds; joined below
					var err error
					for range testkit.Shorter(50, 10) {
						err = errors.Join(err, pick.Do(b.Context(), func(context.Context, *recipes.Lease) error {
							inside.stay(isWriter)
							return nil
						}))
					}
					done <- err
				}()
			}
		}
		for range cap(done) {
			require.NoError(b, <-done)
		}
		require.Empty(b, inside.faults)
		require.Greater(b, inside.together, 1, "readers share")
		require.Empty(b, b.Queue(locks.Path))
	})
}
