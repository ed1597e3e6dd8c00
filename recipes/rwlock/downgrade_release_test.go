package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Another goroutine releases the write lock at each request of a downgrade. The context of its lease ended, so the downgrade
// fails and reports the release; with a context that does not end, the read lock is granted. A queued writer is served after
// both, and nothing is left.
func TestWriterIsReleasedDuringTheDowngrade(t *testing.T) {
	for n := range 3 {
		for _, isBound := range []bool{true, false} {
			bubble.Run(t, func(b *bubble.Bubble) { releaseWriter(b, n, isBound) })
		}
	}
}

// releaseWriter has another goroutine release the write lock at the n-th request of a downgrade, whose context ends with
// the lease if isBound.
func releaseWriter(b *bubble.Bubble, n int, isBound bool) {
	b.Helper()
	client := b.Client()
	read, write := locks.ReadWrite(b, client)
	writer := bubble.Acquire(b, write.Acquire)
	_, otherWrite := locks.ReadWrite(b, b.Client())
	queued := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
	session, count, released := client.Conn().SessionID(), 0, make(chan error, 1)
	stop := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session != session || r.Op == zktest.OpPing {
			return zktest.Fault{}
		}
		if count++; count != n+1 {
			return zktest.Fault{}
		}
		go func() { released <- writer.Release() }() // joined below
		return zktest.Fault{Delay: time.Second}
	})
	ctx := writer.Context()
	if !isBound {
		ctx = context.WithoutCancel(ctx)
	}
	reader, err := read.Acquire(ctx)
	stop()
	require.NoError(b, <-released)
	if isBound {
		require.ErrorIs(b, err, recipes.ErrReleased, "request %d", n)
		require.ErrorIs(b, err, context.Canceled)
		require.NotErrorIs(b, err, recipes.ErrNodeDeleted)
	} else {
		require.NoError(b, err, "request %d", n)
		b.Stands(reader)
		bubble.Pass(time.Second)
		require.Empty(b, queued, "the read lock has the position of the writer")
		b.Release(reader)
	}
	b.Release(bubble.Granted(b, queued))
	bubble.Pass(time.Second)
	require.Empty(b, b.Queue(locks.Path))
}

// The writer is released during the acquisition of a read lock under it, so that acquisition is the last user of the writer. It
// returns with its context, and the writer's znode is deleted in the background.
func TestDowngradeThatLeavesTheWriterEndsWithItsContext(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		read, write := locks.ReadWrite(b, client)
		writer := bubble.Acquire(b, write.Acquire)
		b.Srv.Delay(zktest.OpAny, 3*time.Second, client.Conn().SessionID())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(writer.Context()), 100*time.Millisecond)
		defer cancel()
		start, reading := time.Now(), bubble.Waiting(b, ctx, read.Acquire)
		b.Release(writer)
		got := bubble.Receive(b, reading)
		require.Equal(b, 100*time.Millisecond, got.At.Sub(start))
		require.ErrorIs(b, got.Err, context.DeadlineExceeded)
		bubble.Pass(20 * time.Second)
		require.Empty(b, b.Queue(locks.Path))
	})
}
