package once_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// After Forget the path is as before its first occurrence, on all hosts.
func TestForget(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		require.NoError(f, first.Forget(f.Context()), "nothing has run")
		var c counter
		require.NoError(f, first.Do(f.Context(), "2030-01-01", c.run)) // by mistake
		require.ErrorIs(f, second.Do(f.Context(), "2026-11-26", c.run), once.ErrSuperseded)
		require.NoError(f, second.Forget(f.Context()))
		require.Empty(f, f.srv.Children(jobs))
		for _, o := range []*once.Once{first, second} {
			require.Zero(f, f.last(o))
		}
		require.NoError(f, second.Do(f.Context(), "2026-11-26", c.run))
		require.ErrorIs(f, first.Do(f.Context(), "2026-11-26", c.run), once.ErrDone)
		require.EqualValues(f, 2, c.calls.Load())
	})
}

// Forget waits for a current run, whether its host is alive or crashed, and fails if its context ends first.
func TestForgetDuringARun(t *testing.T) {
	inBubble(t, func(f *fixture) {
		running, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		ended := make(chan error, 2)
		for _, isCrash := range []bool{false, true} {
			go func() {
				ended <- first.Do(f.Context(), tick, func(ctx context.Context, _ *recipes.Lease) error {
					if !isCrash {
						pause(10 * time.Minute)
						return nil
					}
					f.srv.Partition(running.Conn().SessionID())
					<-ctx.Done()
					return nil
				})
			}()
			pass(time.Millisecond)
			ctx, cancel := context.WithTimeout(f.Context(), time.Second)
			err := second.Forget(ctx)
			cancel()
			var wait *recipes.WaitError
			require.ErrorAs(f, err, &wait)
			require.Equal(f, "web-1", wait.Holder.ID)
			require.Equal(f, tick, f.last(second).Occurrence)
			require.ErrorIs(f, second.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
			require.NoError(f, second.Forget(f.Context()))
			if !isCrash {
				require.NoError(f, <-ended)
			} else {
				require.ErrorIs(f, <-ended, recipes.ErrSessionLost)
			}
			require.Zero(f, f.last(second))
		}
	})
}

// A host waits for the lock behind a run of the same occurrence, and behind Forget. The event of the start arrives after the
// record is erased, so the host can't know that the occurrence ran. It does not run it.
func TestForgetAheadOfAWaiterOfTheSameOccurrence(t *testing.T) {
	for _, options := range [][]once.Option{nil, {once.WithRetry()}} {
		inBubble(t, func(f *fixture) {
			_, first := f.host("web-1", 0, options...)
			deaf, second := f.host("web-2", 1, options...)
			_, operator := f.host("operator", 1)
			var c counter
			waiter, forgotten := make(chan error, 1), make(chan error, 1)
			begin := func() {
				go func() { forgotten <- operator.Forget(f.Context()) }()
				pass(time.Second)
				go func() { waiter <- second.Do(f.Context(), tick, c.run) }()
				pass(time.Second)
				f.srv.DropEvent(1, deaf.Conn().SessionID())
			}
			isBegun := false
			f.srv.Inject(func(r zktest.Request) zktest.Fault { // the run starts only when the two others are in the queue
				if r.Op == zktest.OpMulti && !isBegun {
					isBegun = true
					begin()
				}
				return zktest.Fault{}
			})
			require.NoError(f, first.Do(f.Context(), tick, c.run))
			require.NoError(f, <-forgotten)
			require.ErrorContains(f, <-waiter, "the record was erased while Do waited for the lock")
			require.EqualValues(f, 1, c.calls.Load())
			require.NoError(f, second.Do(f.Context(), tick, c.run), "a call that begins after Forget")
		})
	}
}

// Each request of Forget can lose its answer, or get lost itself.
func TestLostAnswersOfForget(t *testing.T) {
	for _, loss := range []zktest.Loss{zktest.ReplyLost, zktest.RequestLost} {
		for n := 0; ; n++ {
			isReached := false
			inBubble(t, func(f *fixture) {
				client, first := f.host("web-1", 0)
				_, second := f.host("web-2", 1)
				require.NoError(f, second.Do(f.Context(), tick, (&counter{}).run))
				session, count := client.Conn().SessionID(), 0
				remove := f.srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Session != session || r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
						return zktest.Fault{}
					}
					if count++; count-1 == n {
						isReached = true
						return zktest.Fault{Lost: loss}
					}
					return zktest.Fault{}
				})
				require.NoError(f, first.Forget(f.Context()))
				remove()
				require.Zero(f, f.last(second))
				require.NoError(f, second.Do(f.Context(), tick, (&counter{}).run))
				require.Equal(f, []string{"last"}, f.srv.Children(jobs))
			})
			if !isReached {
				require.Greater(t, n, 4)
				break
			}
		}
	}
}

// The lock is lost between the read of the record and its deletion: another host may run meanwhile, so nothing is erased.
func TestForgetNeedsTheLock(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		require.NoError(f, second.Do(f.Context(), tick, (&counter{}).run))
		f.beforeTheStart(func() { f.srv.Expire(client.Conn().SessionID()) })
		require.ErrorIs(f, first.Forget(f.Context()), recipes.ErrSessionLost)
		require.ErrorIs(f, second.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
	})
}

// What Forget does not touch.
func TestForgetRefuses(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		require.NoError(f, o.Do(f.Context(), tick, func(ctx context.Context, _ *recipes.Lease) error {
			err := o.Forget(ctx)
			require.ErrorIs(f, err, recipes.ErrInvalidArgument, "it would wait for itself")
			require.ErrorContains(f, err, "once: forget /jobs/report: ")
			return nil
		}))
		require.ErrorIs(f, o.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
		f.srv.Put(record, []byte("precious=1"))
		require.ErrorIs(f, o.Forget(f.Context()), once.ErrRecord)
		data, _, _ := f.srv.Get(record)
		require.Equal(f, "precious=1", string(data))
	})
}

// A record in the format of an earlier version is accepted, and keeps its format.
func TestRecordOfAnEarlierVersion(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		var c counter
		for _, latest := range []struct{ text, equal, next string }{
			{"2026-11-26T03:00", "2026-11-26T03:00", "2026-11-26T04:00"},
			{"1999-11-26T03:00:00.000000000Z", "1999-11-26T03:00Z", "1999-11-26T04:00Z"},
			{"build-9", "build-9", "build-10"},
			{"0041", "41", "42"},
		} {
			f.srv.Put(record, []byte(`{"occurrence":"`+latest.text+`","id":"web-9","token":7,"startedAt":"2026-11-26T03:00:00.01Z","finishedAt":"2026-11-26T03:00:07.2Z","finished":true}`))
			require.ErrorIs(f, o.Do(f.Context(), latest.equal, c.run), once.ErrDone)
			require.NoError(f, o.Do(f.Context(), latest.next, c.run), latest.next)
		}
		require.EqualValues(f, 4, c.calls.Load())
		data, _, _ := f.srv.Get(record)
		require.Regexp(f, `^{"occurrence":"42","id":"web-1","token":\d+,"startedAt":"[^"]+","finishedAt":"[^"]+","finished":true}$`, string(data))
	})
}
