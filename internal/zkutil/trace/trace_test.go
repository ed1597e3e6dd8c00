package trace_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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
