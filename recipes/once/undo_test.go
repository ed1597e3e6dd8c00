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

// unclear is how long a start stays without an answer. After a second, eight connections may have ended at it: then it is taken for an
// operation that the server does not know.
const unclear = time.Second / 2

// giveUpStart runs a Do that ends while nobody knows whether its start was recorded.
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

// A start without a run is not there for the next calls on the client: they wait until it is taken back.
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

// A Do that waits for the lock sees the start of another Do on the same client, whose function is never called: it goes on waiting,
// and runs the occurrence.
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

// Close takes a start back before it ends the session: whether Do has given the start up before, or because of Close.
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
		require.Contains(f, log.String(), "a start was not taken back: its occurrence counts as started")
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
		require.ErrorContains(f, err, "is not taken back yet")
		require.LessOrEqual(f, time.Since(began), time.Minute)
		_, err = o.Last(f.Context())
		require.ErrorContains(f, err, "is not taken back yet")
		require.ErrorIs(f, second.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
		require.NoError(f, client.Close())
	})
}

// The order of occurrences has no circle: otherwise an occurrence runs again after two others.
func TestOccurrencesOfSeveralFormatsRunOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		var c counter
		for _, occurrence := range []string{"9", "10", "1a"} {
			require.NoError(f, o.Do(f.Context(), occurrence, c.run))
		}
		for _, occurrence := range []string{"9", "10", "1a", "011"} {
			require.ErrorIs(f, o.Do(f.Context(), occurrence, c.run), once.ErrDone)
		}
		require.EqualValues(f, 3, c.calls.Load())
	})
}

// A record has what another program has written. Its text does not break the line.
func TestRecordWithUnprintableText(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		f.srv.Put(record, []byte(`{"occurrence":"z\nlevel=ERROR", "id":"web\u202e2", "token":7, "finishedAt":"2026-11-26T03:00:07Z", "failure":"a\r\nb"}`))
		err := o.Do(f.Context(), tick, (&counter{}).run)
		require.ErrorIs(f, err, once.ErrDone)
		require.Contains(f, err.Error(), `2026-11-26T03:00 is before "z\nlevel=ERROR" by "web\u202e2": failed at 2026-11-26T03:00:07Z: "a\r\nb"`)
	})
}
