package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// The error of a wait has the position of the latest znode, and the holder for the second alone, also after the znode was given up. A new
// znode has no position yet.
func TestPositionInTheErrorOfAWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := &Candidate{}
		startedAt := time.Now()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		holder := queue.Participant{Path: "/a/lock-1", Token: 7}
		requireStatus := func(position int, holder queue.Participant) {
			t.Helper()
			wait, ok := zkutil.AsType[*queue.InterruptedError](c.NotAcquired(context.Canceled, startedAt))
			require.True(t, ok)
			require.Equal(t, position, wait.Position)
			require.Equal(t, holder, wait.Holder)
			require.Equal(t, time.Minute, wait.Waited)
			require.ErrorIs(t, wait, context.Canceled)
		}
		requireStatus(0, queue.Participant{})
		c.setPath("/a/lock-2")
		c.setPosition(2, holder)
		requireStatus(2, holder)
		c.setPath("")
		requireStatus(2, holder)
		c.setPath("/a/lock-4")
		requireStatus(0, queue.Participant{})
		c.setPosition(3, holder)
		requireStatus(3, queue.Participant{})
		path, changed := c.pathAndChange()
		require.Equal(t, "/a/lock-4", path)
		require.Equal(t, path, c.Path())
		require.False(t, zkutil.IsClosed(changed))
		c.setPath("")
		require.True(t, zkutil.IsClosed(changed))
		require.Empty(t, c.Path())
		require.Nil(t, c.termAt("/a/lock-4"))
	})
}

// Of refusals in a row with one text, the first counts. The names of the candidate's own znodes make no difference.
func TestRefusalsThatAreNew(t *testing.T) {
	const znode = "/a/_c_01234567-89ab-cdef-0123-456789abcdef-latch-000000000"
	c := &Candidate{}
	for _, step := range []struct {
		err   error
		isNew bool
	}{
		{errors.New("create " + znode + "1"), true},
		{errors.New("create " + znode + "2"), false},
		{errors.New("list"), true},
		{nil, true},
		{nil, true},
		{errors.New("list"), true},
		{errors.New("list"), false},
	} {
		require.Equal(t, step.isNew, c.recordRefusal(step.err), "%v", step.err)
		require.Equal(t, step.err, c.refusal)
	}
}

// An attempt that ends because the candidate yields begins again, unless it led, or the campaign ends as well.
func TestAttemptsThatYield(t *testing.T) {
	errOther := errors.New("other")
	for name, test := range map[string]struct {
		isYielding []bool  // by attempt
		errs       []error // of the attempts
		ends       bool    // the campaign, in the first
		want       error
	}{
		"a success":            {isYielding: []bool{false}, errs: []error{nil}},
		"a failure":            {isYielding: []bool{false}, errs: []error{errOther}, want: errOther},
		"it yields":            {isYielding: []bool{true, true, false}, errs: []error{errYield, errYield, nil}},
		"it yields, but leads": {isYielding: []bool{true}, errs: []error{nil}},
		"it fails later":       {isYielding: []bool{true, false}, errs: []error{errYield, errOther}, want: errOther},
		"the campaign ends":    {isYielding: []bool{true}, errs: []error{errYield}, ends: true, want: errYield},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Candidate{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			var inner []context.Context
			_, err := c.steered(func(ctx context.Context, _ *queue.WaitStatus) (term *session.Entry, err error) {
				inner = append(inner, ctx)
				if test.isYielding[n] {
					c.endAttempt()
				}
				if test.ends {
					cancel()
				}
				n++
				return nil, test.errs[n-1]
			})(ctx, nil)
			require.Equal(t, test.want, err)
			require.Len(t, inner, len(test.errs))
			for _, ctx := range inner {
				require.Error(t, ctx.Err(), "the contexts are released")
			}
			require.Nil(t, c.yielding)
			c.endAttempt() // there is none
		})
	}
}

// A candidate without a priority does not steer, and so reads nothing.
func TestCandidateWithoutAPriorityDoesNotSteer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := &Candidate{queue: &queue.Queue{}} // without a session, so that a read panics
		c.setPath("/a/latch-0000000001")
		end := c.beginSteering(t.Context())
		synctest.Wait()
		end()
	})
}
