package trace_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// The end of an acquisition of several leases has the number of leases, and the first loss.
func TestAcquisitionOfSeveralLeases(t *testing.T) {
	var ends []trace.End
	hooks := []*trace.Hooks{{
		AcquireEnd: func(_ context.Context, e trace.End) { ends = append(ends, e) },
		LeaseEnd:   func(_ context.Context, e trace.End) { ends = append(ends, e) },
	}}
	a := trace.Begin(t.Context(), hooks, trace.Subject{Path: "/permits"}, func(fn func()) { fn() })
	a.SetAhead(2)
	a.Succeed(false, 7, 3)
	require.False(t, a.EndLease(zkutil.ErrReleased))
	require.False(t, a.EndLease(zkutil.ErrSuspended))
	require.True(t, a.EndLease(zkutil.ErrClosed))
	a.CallLeaseEnd()
	require.Len(t, ends, 2)
	acquired, ended := ends[0], ends[1]
	require.Equal(t, "/permits", acquired.Path)
	require.Equal(t, 2, acquired.Ahead)
	require.EqualValues(t, 7, acquired.Token)
	require.Equal(t, 3, ended.Permits)
	require.ErrorIs(t, ended.Err, zkutil.ErrSuspended)
}

// An acquisition without hooks is nil, and its methods do nothing.
func TestAcquisitionWithoutHooks(t *testing.T) {
	a := trace.Begin(t.Context(), nil, trace.Subject{}, nil)
	require.Nil(t, a)
	a.SetAhead(1)
	a.Fail(context.Canceled)
	a.Succeed(true, 1, 1)
	require.False(t, a.EndLease(nil))
}

// Each hook gets the context of its own AcquireStart, and the others are left out. Times count from the start, and from the grant.
func TestHooksOfAnAcquisition(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		type key struct{}
		subject := trace.Subject{Recipe: "mutex", Name: "a", Path: "/a", Try: true}
		var got []string
		var ends []trace.End
		record := func(what string) func(context.Context, trace.End) {
			return func(ctx context.Context, e trace.End) {
				got, ends = append(got, what+" "+fmt.Sprint(ctx.Value(key{}))), append(ends, e)
			}
		}
		hooks := []*trace.Hooks{
			{},
			{
				AcquireStart: func(ctx context.Context, s trace.Subject) context.Context {
					require.Equal(t, subject, s)
					return context.WithValue(ctx, key{}, 1)
				},
				AcquireEnd: record("acquired"),
			},
			{AcquireStart: func(context.Context, trace.Subject) context.Context { return nil }, AcquireEnd: record("acquired"), LeaseEnd: record("ended")},
			{LeaseEnd: record("ended")},
		}
		calls := 0
		begin := func() *trace.Acquisition {
			return trace.Begin(context.WithValue(t.Context(), key{}, 0), hooks, subject, func(fn func()) { calls++; fn() })
		}
		a := begin()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		a.SetAhead(3)
		a.Succeed(true, 7, 1)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		require.True(t, a.EndLease(nil))
		a.CallLeaseEnd()
		require.Equal(t, []string{"acquired 1", "acquired 0", "ended 0", "ended 0"}, got)
		require.Equal(t, 6, calls)
		acquired, ended := trace.End{Subject: subject, Token: 7, Reentrant: true, Ahead: 3, Waited: time.Second}, trace.End{Subject: subject, Token: 7, Held: time.Minute}
		require.Equal(t, []trace.End{acquired, acquired, ended, ended}, ends)

		got, ends = nil, nil
		a = begin()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		a.Fail(context.Canceled)
		failed := trace.End{Subject: subject, Err: context.Canceled, Waited: time.Second}
		require.Equal(t, []trace.End{failed, failed}, ends)
	})
}
