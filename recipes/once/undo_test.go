package once_test

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// loseStarts makes the server execute the starts of a client and lose the answers, until calm is called.
func (f *fixture) loseStarts(client *recipes.Client) (calm func()) {
	return f.srv.DropReply(zktest.OpMulti, math.MaxInt, client.Conn().SessionID())
}

// refuseTakingBack makes the server refuse the next n attempts to take a start back.
func (f *fixture) refuseTakingBack(n int64) {
	var attempts atomic.Int64
	f.srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpSetData && r.Path == record && attempts.Add(1) <= n {
			return zktest.Fault{Refusal: zktest.RefuseTimeout}
		}
		return zktest.Fault{}
	})
}

// unclear is the time for which a start is unanswered. After one second, eight connections may have ended at the operation, and
// the client would take it for one that the server does not know.
const unclear = time.Second / 2

// giveUpStart runs a Do that ends while the outcome of its start is unknown.
func (f *fixture) giveUpStart(client *recipes.Client, o *once.Once) {
	f.Helper()
	calm := f.loseStarts(client)
	ctx, cancel := context.WithTimeout(f.Context(), unclear)
	defer cancel()
	var c counter
	require.ErrorIs(f, o.Do(ctx, tick, c.run), context.DeadlineExceeded)
	require.Zero(f, c.calls.Load())
	calm()
}

// The next calls on the client do not see a start without a run. They wait until it is undone.
func TestStartIsTakenBackBeforeTheNextCall(t *testing.T) {
	for name, next := range map[string]func(f *fixture, client *recipes.Client, o *once.Once) error{
		"Do": func(f *fixture, _ *recipes.Client, o *once.Once) error {
			return o.Do(f.Context(), tick, (&counter{}).run)
		},
		"Within": func(f *fixture, _ *recipes.Client, o *once.Once) error {
			return o.DoWithin(f.Context(), 5*time.Second, tick, (&counter{}).run)
		},
		"another Once": func(f *fixture, client *recipes.Client, _ *once.Once) error {
			o, err := once.New(client, jobs)
			require.NoError(f, err)
			return o.Do(f.Context(), tick, (&counter{}).run)
		},
		"Last": func(f *fixture, _ *recipes.Client, o *once.Once) error {
			last, err := o.Last(f.Context())
			require.Zero(f, last)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, o := f.host("web-1", 0)
				f.refuseTakingBack(1) // otherwise it may be over already
				f.giveUpStart(client, o)
				data, _, _ := f.srv.Get(record)
				require.NotEmpty(f, data, "the start is recorded")
				require.NoError(f, next(f, client, o))
			})
		})
	}
}

// A Do that waits for the lock sees the start of another Do on the same client, whose function is never called. It continues to
// wait, and runs the occurrence.
func TestWaiterOfTheClientOutlastsAStartWithoutARun(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		waiter := make(chan error, 1)
		f.beforeTheStart(func() {
			go func() { waiter <- o.Do(f.Context(), tick, (&counter{}).run) }()
		})
		f.giveUpStart(client, o)
		require.NoError(f, <-waiter)
		require.True(f, f.last(o).Finished)
	})
}

// The lock stays held until the start is taken back, so that no other host sees the start while it decides on a later occurrence.
func TestLockIsHeldUntilTheStartIsTakenBack(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		var mu sync.Mutex // protects order
		var order []zktest.Op
		f.srv.Inject(func(r zktest.Request) zktest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if r.Op != zktest.OpSetData && r.Op != zktest.OpDelete {
				return zktest.Fault{}
			}
			order = append(order, r.Op)
			if len(order) < 3 {
				return zktest.Fault{Refusal: zktest.RefuseTimeout}
			}
			return zktest.Fault{}
		})
		f.giveUpStart(client, o)
		pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(f, []zktest.Op{zktest.OpSetData, zktest.OpSetData, zktest.OpSetData, zktest.OpDelete}, order)
		require.Equal(f, []string{"last"}, f.srv.Children(jobs))
	})
}

// Close undoes a start before it ends the session, whether Do abandoned the start earlier, or because of Close.
func TestCloseTakesAStartBack(t *testing.T) {
	for name, giveUp := range map[string]func(f *fixture, client *recipes.Client, o *once.Once){
		"given up before": func(f *fixture, client *recipes.Client, o *once.Once) { f.giveUpStart(client, o) },
		"given up by Close": func(f *fixture, client *recipes.Client, o *once.Once) {
			calm := f.loseStarts(client)
			result := make(chan error, 1)
			go func() { result <- o.Do(f.Context(), tick, (&counter{}).run) }()
			pass(unclear)
			calm()
			require.NoError(f, client.Close())
			require.ErrorIs(f, <-result, recipes.ErrClosed)
		},
		"answered late": func(f *fixture, client *recipes.Client, o *once.Once) {
			f.srv.Delay(zktest.OpMulti, time.Second, client.Conn().SessionID())
			result := make(chan error, 1)
			go func() { result <- o.Do(f.Context(), tick, (&counter{}).run) }()
			pass(500 * time.Millisecond)
			require.NoError(f, client.Close())
			require.ErrorIs(f, <-result, recipes.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, o := f.host("web-1", 0)
				_, second := f.host("web-2", 1)
				giveUp(f, client, o)
				require.NoError(f, client.Close())
				require.Zero(f, f.last(second))
				require.NoError(f, second.Do(f.Context(), tick, (&counter{}).run))
			})
		})
	}
}

// A start that stays without a run is a record at Warn, which names the path and the occurrence, and says what the start means.
func TestStartThatStaysIsLogged(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log testkit.Log
		client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs()[:1], recipes.WithSessionTimeout(testclient.SessionTimeout),
			recipes.WithLogger(log.Logger(slog.LevelWarn)))
		o, err := once.New(client, jobs)
		require.NoError(f, err)
		f.refuseTakingBack(math.MaxInt64)
		f.giveUpStart(client, o)
		began := time.Now()
		require.NoError(f, client.Close())
		synctest.Wait()
		require.LessOrEqual(f, time.Since(began), time.Minute)
		require.Contains(f, log.String(), "occurrence is recorded as started but was never run")
		require.Contains(f, log.String(), "path="+jobs)
		require.Contains(f, log.String(), tick)
	})
}

// If the server refuses to take a start back, the next Do fails within an operation timeout, and Close ends.
func TestStartThatStaysIsNotWaitedForWithoutEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		other, second := f.host("web-2", 1)
		isStruck := false
		f.srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpMulti && !isStruck {
				isStruck = true
				time.AfterFunc(unclear/2, func() {
					_, err := other.Conn().SetACL(record, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
					if err != nil {
						f.Error(err)
					}
				})
			}
			return zktest.Fault{}
		})
		f.giveUpStart(client, o)
		began := time.Now()
		err := o.Do(f.Context(), tick, (&counter{}).run)
		require.ErrorContains(f, err, "could not undo the record within")
		require.LessOrEqual(f, time.Since(began), time.Minute)
		_, err = o.Last(f.Context())
		require.ErrorContains(f, err, "could not undo the record within")
		require.ErrorIs(f, second.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
		require.NoError(f, client.Close())
	})
}

// A record may contain text of another program. That text does not break the line.
func TestRecordWithUnprintableText(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		f.srv.Put(record, []byte(`{"occurrence":"2026-11-26T03:00\u202e1", "id":"web\u202e2", "token":7, "finishedAt":"2026-11-26T03:00:07Z", "failure":"a\r\nb"}`))
		err := o.Do(f.Context(), tick, (&counter{}).run)
		require.ErrorIs(f, err, once.ErrFormat)
		require.Contains(f, err.Error(), `2026-11-26T03:00 can't be ordered after "2026-11-26T03:00\u202e1" by "web\u202e2": failed at 2026-11-26T03:00:07Z: "a\r\nb"`)
	})
}

// A client that gave up a start has no connection while another client erases the record, and a host runs the occurrence. The new record gets to
// the version at which the start was written, and the undo does not overwrite it.
func TestUndoDoesNotHitARecordAfterForget(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		require.NoError(f, o.Do(f.Context(), "2026-11-25T03:00", (&counter{}).run))
		id := client.Conn().SessionID()
		f.srv.Inject(func(r zktest.Request) (fault zktest.Fault) {
			if r.Op == zktest.OpSetData && r.Session == id {
				fault.Refusal = zktest.RefuseTimeout
			}
			return fault
		})
		f.giveUpStart(client, o)
		f.srv.Partition(id)
		f.srv.Expire(id)
		_, other := f.host("web-2", 0)
		require.NoError(f, other.Forget(f.Context()))
		var c counter
		require.NoError(f, other.Do(f.Context(), tick, c.run))
		f.srv.Heal()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.ErrorIs(f, other.Do(f.Context(), tick, c.run), once.ErrDone)
		require.EqualValues(f, 1, c.calls.Load())
		require.Equal(f, "web-2", f.last(other).ID)
	})
}
