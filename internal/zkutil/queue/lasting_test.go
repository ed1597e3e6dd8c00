package queue_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A lock named after a key that another party chooses must not block the lock above it.
func TestPathWithTheNameOfAContenderIsRefused(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const contender = "_c_8e3b5d3e-5b0c-4c7e-9c3b-0a2b4c6d8e0f-lock-0000000000"
		client := f.Client()
		for _, key := range []string{contender, contender + "/x", "x/" + contender + "/y", "lock-0000000000", "x-lease-0000000001", "0__lock__0000000001"} {
			_, err := mutex.New(client, locks.Path+"/"+key)
			require.ErrorIs(f, err, recipes.ErrInvalidPath, key)
			require.ErrorIs(f, err, recipes.ErrInvalidArgument, key)
			require.ErrorContains(f, err, "has the name of a contender, and would block a lock or an election on "+locks.Path, key)
		}
		for _, key := range []string{"block-0000000012", "lock-1", "lock-", "lock-0000000000x"} {
			m, err := mutex.New(client, locks.Path+"/"+key)
			require.NoError(f, err, key)
			require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		}
		require.NoError(f, bubble.Acquire(f.T, f.Mutex(client).Acquire).Release(), "the lock above")

		_, err := mutex.New(f.Client(recipes.WithNamespace("team/lock-0000000000")), locks.Path)
		require.ErrorIs(f, err, recipes.ErrInvalidPath)
	})
}

// A znode of another program, whose name only ends like a contender's, is no contender.
func TestForeignWordsBeforeTheMarker(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		f.Srv.Put(locks.Path+"/block-0000000012", nil)
		f.Srv.Put(locks.Path+"/_c_x_lock-0000000000", nil)
		lease := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		participants, err := f.Mutex(f.Client()).Participants(f.Context())
		require.NoError(f, err)
		require.Len(f, participants, 1)
		require.NoError(f, lease.Release())
	})
}

// No contender can hold a lock behind a znode that is not ephemeral, so all places where users look report that. Once
// it is deleted, the lock works.
func TestWaitForAZnodeThatIsNotEphemeral(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const lasting = locks.Path + "/lock-0000000000"
		f.Srv.Put(lasting, []byte("by hand"))
		log := &testkit.Log{}
		since := time.Now()
		m := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn))))
		ctx, cancel := context.WithTimeout(f.Context(), 90*time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.ErrorIs(f, err, recipes.ErrNotEphemeral)
		require.ErrorContains(f, err, "context deadline exceeded; behind a znode that is not ephemeral: "+lasting)
		wait, ok := zkutil.AsType[*recipes.WaitError](err)
		require.True(f, ok)
		require.True(f, wait.Holder.NotEphemeral)
		require.Equal(f, "by hand", wait.Holder.ID)
		require.Equal(f, []string{
			`level=WARN msg="slow wait" path=/locks/a waited=1m0s position=2 waiters=1 holder="by hand" since=` + locks.Stamp(since) +
				` err="behind a znode that is not ephemeral: ` + lasting + `"`,
		}, locks.TakeLog(log))

		waiting := f.Waiting(f.Context(), m)
		participants, err := m.Participants(f.Context())
		require.NoError(f, err)
		require.Len(f, participants, 2)
		require.True(f, participants[0].NotEphemeral)
		require.False(f, participants[1].NotEphemeral)
		f.Srv.Delete(lasting)
		require.NoError(f, bubble.Granted(f, waiting).Release())
	})
}

// The waiter directly behind such a znode knows of it, although others are ahead; those behind that waiter do not. After the
// deletion of the znode, the waiter no longer blames it.
func TestWaitForAZnodeInTheMiddleThatIsNotEphemeral(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		first := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		number := first.Path()[len(first.Path())-10:]
		lasting := locks.Path + "/x-lock-" + number // the same number, and behind by its name
		f.Srv.Put(lasting, nil)
		require.Less(f, first.Path(), lasting)
		wait := func(limit time.Duration) <-chan bubble.Outcome[*recipes.Lease] {
			ctx, cancel := context.WithTimeout(f.Context(), limit)
			f.Cleanup(cancel)
			return f.Waiting(ctx, f.Mutex(f.Client()))
		}
		directly, behind, later := wait(time.Minute), wait(time.Minute/2), wait(time.Hour)
		got := bubble.Receive(f, directly)
		require.ErrorIs(f, got.Err, recipes.ErrNotEphemeral)
		require.ErrorContains(f, got.Err, lasting)
		waitError, _ := zkutil.AsType[*recipes.WaitError](got.Err)
		require.Equal(f, 3, waitError.Position)
		require.Equal(f, first.Path(), waitError.Holder.Path)
		got = bubble.Receive(f, behind)
		require.ErrorIs(f, got.Err, context.DeadlineExceeded)
		require.NotErrorIs(f, got.Err, recipes.ErrNotEphemeral)
		bubble.Pass(time.Minute)
		f.Srv.Delete(lasting)
		got = bubble.Receive(f, later)
		require.ErrorIs(f, got.Err, context.DeadlineExceeded)
		require.NotErrorIs(f, got.Err, recipes.ErrNotEphemeral, "it waits for the holder now")
		require.NoError(f, first.Release())
	})
}

// A holder that was asked to release has the request in place of its id, so that a slow wait names none.
func TestSlowWaitBehindARevokedHolder(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		holder := f.Client()
		since := time.Now()
		held := bubble.Acquire(f, f.Mutex(holder, mutex.WithID("holder")).Acquire)
		require.NoError(f, revoke.New(f.Client()).AttemptRevoke(f.Context(), held.Path()))
		ctx, cancel := context.WithTimeout(f.Context(), 90*time.Second)
		defer cancel()
		_, err := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)))).Acquire(ctx)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.Equal(f, []string{
			`level=WARN msg="slow wait" path=/locks/a waited=1m0s position=2 waiters=1 holder="" since=` + locks.Stamp(since),
		}, locks.TakeLog(log))
	})
}

// A client that is closed while it reads the holder for a warning ends all waits, and so writes none. If the holder is not read in time, the
// warning has the position alone.
func TestSlowWaitWithoutTheHolder(t *testing.T) {
	for _, closes := range []bool{true, false} {
		locks.Run(t, func(f *locks.Fixture) {
			log := &testkit.Log{}
			held := bubble.Acquire(f, f.Mutex(f.Client()).Acquire)
			client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)))
			waiting := f.Waiting(f.Context(), f.Mutex(client))
			bubble.Pass(time.Minute - time.Second)
			f.Srv.Delay(zktest.OpGetChildren2, 2*time.Second)
			bubble.Pass(time.Second + 100*time.Millisecond)
			require.Empty(f, locks.TakeLog(log))
			if closes {
				_ = client.Close() // the server answers late
				require.ErrorIs(f, bubble.Receive(f, waiting).Err, recipes.ErrClosed)
				require.NotContains(f, log.String(), "slow wait")
				return
			}
			bubble.Pass(time.Second)
			lines := locks.TakeLog(log)
			require.Len(f, lines, 1)
			require.Contains(f, lines[0], `msg="slow wait" path=/locks/a waited=1m0s position=2 err=`)
			f.Release(held)
			f.Release(bubble.Granted(f, waiting))
		})
	}
}
