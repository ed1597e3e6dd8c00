package once_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
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

// ending is a run on the first host, at whose end a fault strikes, while the second host waits.
type ending struct {
	*fixture

	client    *recipes.Client
	first     *once.Once
	second    *once.Once
	cancel    context.CancelFunc // of the context of Do
	lease     *recipes.Lease
	leaseEnds []recipes.LeaseEnd
	log       testkit.Log // of the first host
	cause     error       // why the lease ended before the transaction of the end arrived
	derived   error       // of a context that the function derived from its own, at the same time
	err       error       // of Do
	later     int         // transactions with the lock's znode after that of the end
}

func newEnding(f *fixture, options ...once.Option) *ending {
	f.Helper()
	e := &ending{fixture: f}
	e.client = zkclient.ConnectTo(f, f.srv, f.srv.Addrs()[:1], recipes.WithSessionTimeout(testclient.SessionTimeout),
		recipes.WithLogger(e.log.Logger(slog.LevelWarn)), recipes.WithTrace(&recipes.Trace{LeaseEnd: func(_ context.Context, end recipes.LeaseEnd) { e.leaseEnds = append(e.leaseEnds, end) }}))
	var err error
	e.first, err = once.New(e.client, jobs, append([]once.Option{once.WithID("web-1")}, options...)...)
	require.NoError(f, err)
	_, e.second = f.host("web-2", 1, options...)
	return e
}

// run runs a function whose result is result, and strikes at its end. It returns the error of a Do of the other host that waits with next,
// if any.
func (e *ending) run(next string, result error, prepare func(*ending), strike func(*ending) zktest.Fault) (other error) {
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	e.cancel = cancel
	session, waiter := e.client.Conn().SessionID(), make(chan error, 1)
	var transactions atomic.Int32
	e.err = e.first.Do(ctx, tick, func(ctx context.Context, lease *recipes.Lease) error {
		e.lease = lease
		derived, cancelDerived := context.WithCancel(ctx)
		context.AfterFunc(e.Context(), cancelDerived) // not at the end of the function
		if next != "" {
			go func() { waiter <- e.second.Do(e.Context(), next, (&counter{}).run) }() // joined below
			pass(time.Millisecond)
		}
		if prepare != nil {
			prepare(e)
		}
		e.srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti || r.Session != session || r.Path != lease.Path() || transactions.Add(1) > 1 {
				return zktest.Fault{}
			}
			e.cause, e.derived = context.Cause(lease.Context()), derived.Err()
			return strike(e)
		})
		return result
	})
	e.later = int(transactions.Load()) - 1
	if next == "" {
		return nil
	}
	return <-waiter
}

// shutDown begins to shut the first host down.
func (e *ending) shutDown() {
	go func() { _ = e.client.Shutdown(context.Background()) }() // joined by Close at the end of the test
	pause(time.Millisecond)
}

// setACL changes the ACL of a znode by another client.
func (f *fixture) setACL(path string, permissions int32) {
	_, err := testclient.Connect(f.T, f.srv).Conn().SetACL(path, zk.WorldACL(permissions), -1)
	require.NoError(f, err)
}

// faultAtTheEnd is what happens when the transaction that records the end arrives.
type faultAtTheEnd struct {
	prepare func(e *ending) // before the function returns; may be nil
	strike  func(e *ending) zktest.Fault
	isLost  bool // the end is not recorded
	isAlone bool // no other transaction with the lock's znode follows
}

var faultsAtTheEnd = map[string]faultAtTheEnd{
	"nothing":      {strike: func(*ending) zktest.Fault { return zktest.Fault{} }, isAlone: true},
	"lost request": {strike: func(*ending) zktest.Fault { return zktest.Fault{Lost: zktest.RequestLost} }},
	"lost reply":   {strike: func(*ending) zktest.Fault { return zktest.Fault{Lost: zktest.ReplyLost} }},
	"lost answer":  {strike: func(*ending) zktest.Fault { return zktest.Fault{Lost: zktest.AnswerLost} }},
	"hung server":  {strike: func(*ending) zktest.Fault { return zktest.Fault{Lost: zktest.NoAnswer} }},
	"refused":      {strike: func(*ending) zktest.Fault { return zktest.Fault{Refusal: zktest.RefuseTimeout} }},
	"denied":       {strike: func(*ending) zktest.Fault { return zktest.Fault{Refusal: zktest.RefuseNoAuth} }},
	"connection cut": {strike: func(e *ending) zktest.Fault {
		e.srv.Disconnect(e.client.Conn().SessionID())
		return zktest.Fault{}
	}},
	"slow commits": { // so that a heartbeat follows the transaction
		prepare: func(e *ending) {
			pass(time.Second / 2)
			e.srv.SlowCommits(3 * time.Second / 2)
		},
		strike: func(e *ending) zktest.Fault {
			time.AfterFunc(3*time.Second/2, func() { e.srv.SlowCommits(0) })
			return zktest.Fault{}
		},
		isAlone: true,
	},
	"late": { // the quorum executes it after the end of the connection, during the next one
		prepare: func(e *ending) { e.srv.SlowCommits(3 * time.Second) },
		strike: func(e *ending) zktest.Fault {
			time.AfterFunc(time.Second, func() {
				e.srv.SlowCommits(0)
				e.srv.Disconnect(e.client.Conn().SessionID())
			})
			return zktest.Fault{}
		},
	},
	"session expired": {strike: func(e *ending) zktest.Fault {
		e.srv.Expire(e.client.Conn().SessionID())
		return zktest.Fault{}
	}, isLost: true},
	"lock's znode deleted": {strike: func(e *ending) zktest.Fault {
		e.srv.Delete(e.lease.Path())
		return zktest.Fault{}
	}, isLost: true},
	"shutdown": {strike: func(e *ending) zktest.Fault {
		e.shutDown()
		return zktest.Fault{}
	}, isAlone: true},
	"shutdown, and a lost request": {strike: func(e *ending) zktest.Fault {
		e.shutDown()
		return zktest.Fault{Lost: zktest.RequestLost}
	}},
	"shutdown, and a lost reply": {strike: func(e *ending) zktest.Fault {
		e.shutDown()
		return zktest.Fault{Lost: zktest.ReplyLost}
	}},
	"end of Do's context": {strike: func(e *ending) zktest.Fault {
		e.cancel()
		return zktest.Fault{}
	}, isAlone: true},
	"end of Do's context, and a lost request": {strike: func(e *ending) zktest.Fault {
		e.cancel()
		return zktest.Fault{Lost: zktest.RequestLost}
	}},
}

// The end of a run is recorded, and the lock is given up, whatever happens to the transaction that does both. The lease ends before. Another
// host waits with the same occurrence or the next one, or none does. With WithRetry, no occurrence runs again after a Do that returned nil.
func TestFaultsAtTheEnd(t *testing.T) {
	for name, fault := range faultsAtTheEnd {
		for _, retries := range []bool{false, true} {
			for waiter, next := range map[string]string{"alone": "", "same occurrence": tick, "next occurrence": "2026-11-26T04:00"} {
				for _, result := range []error{nil, errOfWork} {
					t.Run(fmt.Sprintf("%s/%s/retries %t/%v", name, waiter, retries, result), func(t *testing.T) {
						inBubble(t, func(f *fixture) { fault.test(f, retries, next, result) })
					})
				}
			}
		}
	}
}

func (fault faultAtTheEnd) test(f *fixture, retries bool, next string, result error) {
	f.Helper()
	var options []once.Option
	if retries {
		options = append(options, once.WithRetry())
	}
	e := newEnding(f, options...)
	other := e.run(next, result, fault.prepare, fault.strike)
	if fault.isLost {
		require.ErrorIs(f, e.err, once.ErrNotRecorded)
	} else {
		require.Equal(f, result, e.err)
	}
	if mayRunAgain := retries && (fault.isLost || result != nil); next == tick && !mayRunAgain {
		require.ErrorIs(f, other, once.ErrDone)
	} else {
		require.NoError(f, other)
	}
	require.ErrorIs(f, e.cause, recipes.ErrReleased)
	require.ErrorIs(f, e.derived, context.Canceled, "the lock may be free, and the context of the function has not ended")
	if fault.isAlone {
		require.Zero(f, e.later)
	}
	pass(time.Minute)
	require.Equal(f, []string{"last"}, f.srv.Children(jobs))
	require.Len(f, e.leaseEnds, 1)
	require.NoError(f, e.leaseEnds[0].Cause)
	require.NotContains(f, e.log.String(), "work still running", "the function returned")
	if last := f.last(e.second); last.Occurrence == tick && last.ID == "web-1" {
		require.Equal(f, fault.isLost, last.FinishedAt.IsZero())
	}
	require.NoError(f, e.client.Close())
}

// One transaction records the end and gives the lock up. If the servers refuse the deletion alone, the end is recorded all the same.
func TestEndIsRecordedAlthoughTheLockCanNotBeGivenUp(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		require.NoError(f, first.Do(ctx, tick, func(context.Context, *recipes.Lease) error {
			f.setACL(jobs, zk.PermAll&^zk.PermDelete)
			return nil
		}))
		require.True(f, f.last(second).Finished)
		require.Len(f, f.srv.Children(jobs), 2)
		f.setACL(jobs, zk.PermAll)
		pass(time.Minute)
		require.Equal(f, []string{"last"}, f.srv.Children(jobs))
	})
}

// Until the end is recorded, a run is in progress for hosts with WithSkip, although its lease ended. Afterwards none of them waits.
func TestRunIsInProgressUntilItsEndIsRecorded(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const next = "2026-11-26T04:00"
		e := newEnding(f, once.WithSkip())
		var during error
		require.NoError(f, e.run("", nil, nil, func(*ending) zktest.Fault {
			during = e.second.Do(f.Context(), next, (&counter{}).run)
			return zktest.Fault{Lost: zktest.RequestLost}
		}))
		require.NoError(f, e.err)
		require.ErrorIs(f, during, once.ErrRunning)
		require.NoError(f, e.second.Do(f.Context(), next, (&counter{}).run))
	})
}

// The record is overwritten by hand while the transaction of the end is lost.
func TestRecordIsOverwrittenAtTheEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		e := newEnding(f)
		require.NoError(f, e.run("", nil, nil, func(*ending) zktest.Fault {
			f.srv.Put(record, []byte(`{"occurrence":"2026-11-26T03:30","id":"web-3","token":7}`))
			return zktest.Fault{Lost: zktest.RequestLost}
		}))
		require.ErrorIs(f, e.err, once.ErrNotRecorded)
		require.Equal(f, "web-3", f.last(e.second).ID)
	})
}

// The transaction is lost, and so is the answer to the write that follows. The record shows that this write took effect.
func TestAnswerIsLostAfterTheEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		e := newEnding(f)
		loseSecondReply := func(e *ending) {
			var transactions atomic.Int32
			f.srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpMulti || r.Path != e.lease.Path() || transactions.Add(1) != 2 {
					return zktest.Fault{}
				}
				return zktest.Fault{Lost: zktest.ReplyLost}
			})
		}
		require.NoError(f, e.run("", nil, loseSecondReply, func(*ending) zktest.Fault { return zktest.Fault{Lost: zktest.RequestLost} }))
		require.NoError(f, e.err)
		require.True(f, f.last(e.second).Finished)
		require.Equal(f, 2, e.later)
	})
}

// Someone deletes the lock's znode, so that the occurrence runs again, and the transaction of the end is lost. Not both runs are reported as
// the successful one.
func TestRunAgainBeforeTheEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		e := newEnding(f, once.WithRetry())
		require.NoError(f, e.run(tick, nil, nil, func(*ending) zktest.Fault {
			f.srv.Delete(e.lease.Path())
			pause(time.Millisecond) // for the other run
			return zktest.Fault{Lost: zktest.RequestLost}
		}))
		require.ErrorIs(f, e.err, once.ErrNotRecorded)
		require.Equal(f, "web-2", f.last(e.second).ID)
	})
}

// An outage begins with the transaction of the end. Do tries to record the end for an operation timeout, and does not wait for the deletion
// of the lock's znode for another one, because a lease would have ended.
func TestOutageAtTheEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		e := newEnding(f)
		var endedAt time.Time
		require.NoError(f, e.run("", nil, nil, func(e *ending) zktest.Fault {
			endedAt = time.Now()
			f.srv.Partition(e.client.Conn().SessionID())
			f.srv.Disconnect(e.client.Conn().SessionID())
			return zktest.Fault{Lost: zktest.RequestLost}
		}))
		require.Equal(f, 10*time.Second, time.Since(endedAt)) // the default
		require.ErrorIs(f, e.err, once.ErrNotRecorded)
		f.srv.Heal()
		pass(time.Minute)
		require.Equal(f, []string{"last"}, f.srv.Children(jobs))
	})
}

// The function returns in an outage, in which the session expires. The lease stands until it is lost, so that Do returns the loss.
func TestLossBeforeTheEnd(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		err := o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
			f.srv.Partition(client.Conn().SessionID())
			f.srv.Disconnect(client.Conn().SessionID())
			pass(time.Second)
			return nil
		})
		require.ErrorIs(f, err, recipes.ErrSessionLost)
		require.NotErrorIs(f, err, once.ErrNotRecorded)
		f.srv.Heal()
	})
}
