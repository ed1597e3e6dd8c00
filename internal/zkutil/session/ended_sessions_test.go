package session_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Sessions that end at an operation, one after the other, do not make it one that the server does not know.
func TestEndedSessionsAreNotBlamedOnAnOperation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		var ended atomic.Int32
		f.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetChildren2 && ended.Add(1) <= 20 {
				f.Srv.Expire(r.Session)
			}
			return zktest.Fault{}
		})
		lease := locks.Acquire(f.T, m)
		require.Greater(f, ended.Load(), int32(20))
		require.NoError(f, lease.Release())
	})
}
