package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that executes a request just after it has ended the session may say that it does not know it (code -12, which
// zk.Conn has no name for): the attempt goes on in the session that follows.
func TestUnknownSessionIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		refusals := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate2 && refusals == 0 {
				refusals++
				return zktest.Fault{Refusal: -12}
			}
			return zktest.Fault{}
		})
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		require.Equal(t, 1, refusals)
		require.NoError(t, e.Leave())
	})
}

// quotaExceeded is an answer that zk.Conn has no name for, and that may be another one later.
const quotaExceeded zktest.Refusal = -125

// An answer with an unknown code may pass. Who waits for a lock does not wait on for ever
// because of one: after an operation timeout its caller gets it.
func TestUnknownAnswer(t *testing.T) {
	for name, op := range map[string]zktest.Op{"create": zktest.OpCreate2, "list": zktest.OpGetChildren2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				allow := srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == op {
						return zktest.Fault{Refusal: quotaExceeded}
					}
					return zktest.Fault{}
				})
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
				fixture.Pass(s.Config().OperationTimeout / 2)
				require.Empty(t, turn)
				allow()
				fixture.Pass(s.Config().Retry.MaxInterval * 3 / 2)
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())

				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == op {
						return zktest.Fault{Refusal: quotaExceeded}
					}
					return zktest.Fault{}
				})
				start := time.Now()
				_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
				require.ErrorContains(t, err, "unknown error: -125")
				require.WithinDuration(t, start.Add(s.Config().OperationTimeout), time.Now(), s.Config().Retry.MaxInterval*3/2)
				fixture.Eventually(t, time.Minute, func() bool { return len(srv.Children("/m")) == 0 })
			})
		})
	}
}
