package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

var errOdd = errors.New("odd")

// Only the end of the caller's context, and a try in vain, interrupt a wait. Other errors stay as they are.
func TestWhatInterruptsAWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		status := WaitStatus{Position: 3, Holder: Participant{Path: "/a"}, reason: errOdd}
		startedAt := time.Now()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		for name, test := range map[string]struct {
			ctx        context.Context //nolint:containedctx // a case
			err        error
			isWait     bool
			hasReason  bool
			isCanceled bool
		}{
			"nothing":                  {ctx: ended},
			"a try in vain":            {ctx: t.Context(), err: zkutil.ErrNotAcquired, isWait: true},
			"a try at the end":         {ctx: ended, err: zkutil.ErrNotAcquired, isWait: true},
			"the end":                  {ctx: ended, err: zkutil.EndOf(ended), isWait: true, hasReason: true, isCanceled: true},
			"the end of another":       {ctx: t.Context(), err: context.Canceled, isCanceled: true},
			"a refusal":                {ctx: t.Context(), err: zk.ErrNoAuth},
			"a refusal beside the end": {ctx: ended, err: zk.ErrNoAuth},
		} {
			err := Interrupted(test.ctx, test.err, status, startedAt)
			wait, isWait := zkutil.AsType[*InterruptedError](err)
			require.Equal(t, test.isWait, isWait, name)
			require.Equal(t, test.hasReason, errors.Is(err, errOdd), name)
			require.Equal(t, test.isCanceled, errors.Is(err, context.Canceled), name)
			if !isWait {
				require.Equal(t, test.err, err, name)
				continue
			}
			require.Equal(t, time.Minute, wait.Waited, name)
			require.Equal(t, 3, wait.Position)
			require.Equal(t, "/a", wait.Holder.Path)
			require.Equal(t, wait.Err.Error(), err.Error())
			require.ErrorIs(t, err, test.err)
		}
	})
}

// A status has the reason of a wait: that of its holder, or another one without a holder.
func TestReasonOfAWait(t *testing.T) {
	var s WaitStatus
	s.SetReason(errOdd)
	require.Equal(t, errOdd, s.reason)
	lasting := Participant{Path: "/a/lock-1", IsLasting: true}
	s.SetHolder(lasting)
	require.Equal(t, lasting, s.Holder)
	require.ErrorIs(t, s.reason, zkutil.ErrNotEphemeral)
	require.ErrorContains(t, s.reason, ": /a/lock-1")
	s.SetHolder(Participant{Path: "/a/lock-2"})
	require.NoError(t, s.reason)
	s.SetReason(errOdd)
	require.Zero(t, s.Holder)
}

// A status without times needs no timer, nor does a waiter without a status.
func TestTimesOfAWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var none *WaitStatus
		for _, s := range []*WaitStatus{none, {}} {
			require.EqualValues(t, math.MaxInt64, s.UntilSlow())
			require.EqualValues(t, math.MaxInt64, s.untilOwn())
			require.EqualValues(t, math.MaxInt64, s.untilHolder())
		}
		s := &WaitStatus{}
		s.startedAt = time.Now()
		s.warnAt, s.ownAt, s.holderAt = s.startedAt.Add(3*time.Second), s.startedAt.Add(2*time.Second), s.startedAt.Add(time.Second)
		require.Equal(t, 3*time.Second, s.UntilSlow())
		require.Equal(t, 2*time.Second, s.untilOwn())
		require.Equal(t, time.Second, s.untilHolder())
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		require.Equal(t, time.Minute, s.Waited())
		require.Negative(t, s.untilHolder())

		w := &waiter{status: &WaitStatus{}, longWaitAt: time.Now().Add(time.Hour)}
		require.NotNil(t, w.newTimer(), "the wait becomes a long one")
		w.ownWatch = &session.Watch{}
		require.Nil(t, w.newTimer())
		for i, due := range []func(*WaitStatus) *time.Time{
			func(s *WaitStatus) *time.Time { return &s.warnAt },
			func(s *WaitStatus) *time.Time { return &s.ownAt },
			func(s *WaitStatus) *time.Time { return &s.holderAt },
		} {
			w.status = &WaitStatus{}
			*due(w.status) = time.Now().Add(time.Minute)
			timer := w.newTimer()
			require.NotNil(t, timer, i)
			start := time.Now()
			<-timer.C
			require.Equal(t, time.Minute, time.Since(start))
		}
	})
}

// A waiter looks for a hold of its own client, and for the holder, once each, unless it belongs to no call.
func TestWhatAWaiterLooksFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		now := time.Now()
		for name, test := range map[string]struct {
			status           func(s *WaitStatus)
			hasOwn, hasOther bool
		}{
			"of a call":            {func(s *WaitStatus) { s.startedAt = now }, true, true},
			"of no call":           {func(*WaitStatus) {}, false, false},
			"of a semaphore":       {func(s *WaitStatus) { s.startedAt, s.holders = now, &Queue{} }, false, true},
			"warned already":       {func(s *WaitStatus) { s.startedAt, s.wasOwn = now, true }, false, true},
			"with a known holder":  {func(s *WaitStatus) { s.startedAt, s.Holder.Token = now, 7 }, true, false},
			"without any holder":   {func(s *WaitStatus) { s.startedAt, s.Holder.Path = now, "" }, true, false},
			"with an earlier time": {func(s *WaitStatus) { s.startedAt, s.holderAt, s.Holder.Token = now, now, 7 }, true, false},
		} {
			w := &waiter{status: &WaitStatus{Holder: Participant{Path: "/a/lock-1"}}}
			test.status(w.status)
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			w.expectOwnHold()
			w.expectHolderRead()
			if test.hasOwn {
				require.Equal(t, time.Now().Add(ownAfter), w.status.ownAt, name)
			} else {
				require.Zero(t, w.status.ownAt, name)
			}
			if test.hasOther {
				require.Equal(t, now.Add(HolderAfter), w.status.holderAt, name)
			} else {
				require.Zero(t, w.status.holderAt, name)
			}
		}
		(&waiter{}).expectOwnHold() // without a status
	})
}

// Those that the rule keeps waiting are waiters. A contender of another recipe in the way is named.
func TestWhoWaits(t *testing.T) {
	contenders := parseContenders([]string{"x-__READ__0000000001", "y-__READ__0000000002", "z-__WRIT__0000000003", "u-__READ__0000000004"}, []string{ReadMarker, WriteMarker})
	require.Len(t, contenders, 4)
	require.Equal(t, 2, (&Queue{Rule: ReadWrite}).countWaiters(contenders))
	require.Equal(t, 3, (&Queue{Rule: Exclusive}).countWaiters(contenders))
	require.Zero(t, (&Queue{Rule: Exclusive}).countWaiters(nil))

	markers := Markers
	for name, isOther := range map[string]bool{"latch-0000000001": true, "lock-0000000001": false, "config": false} {
		w := &waiter{q: &Queue{Markers: markers}, blocker: "/a/" + name}
		w.self, _ = newContender("lock-0000000002", markers)
		require.Equal(t, isOther, errors.Is(w.otherKind(), zkutil.ErrOtherLayout), name)
	}
}

// A znode of no server has no time, and one without an owner lasts.
func TestParticipantOfAZnode(t *testing.T) {
	require.Equal(t, Participant{Path: "/a/lock-1"}, ParticipantOf("/a/lock-1", session.Node{}))
	n := session.Node{Data: Yield{Kind: Stay, Target: "x", ID: []byte("web-1")}.Encode(), Stat: zk.Stat{Czxid: 7, Ctime: 1000, EphemeralOwner: 3}}
	path := fmt.Sprintf("/a/_c_%036d-p5-latch-%010d", 1, 1)
	require.Equal(t, Participant{Path: path, Data: []byte("web-1"), Token: 7, Priority: 5, Created: time.UnixMilli(1000)}, ParticipantOf(path, n))
	n.Stat.EphemeralOwner = 0
	require.True(t, ParticipantOf(path, n).IsLasting)
}
