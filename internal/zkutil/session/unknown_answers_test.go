package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that executes a request just after the end of the session may answer that it does not know the session (code
// -12, which zk.Conn has no name for). The attempt continues in the next session.
func TestUnknownSessionIsNoRefusal(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 1, refusals)
		require.NoError(t, e.Leave())
	})
}

// unknownCode is an answer without a name here, which another version may define.
const unknownCode zktest.Refusal = -66

// A refusal that lasts until an operator acts fails an Acquire at once, and says what to do.
func TestKnownRefusalsAreExplained(t *testing.T) {
	for code, words := range map[zktest.Refusal]string{
		-125: "quota of this path is exceeded", -124: "sessionRequireClientSASLAuth", -120: "localSessionsUpgradingEnabled",
	} {
		withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
			t.Helper()
			srv.Put("/m", nil)
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpCreate2 || r.Op == zktest.OpCreate {
					return zktest.Fault{Refusal: code}
				}
				return zktest.Fault{}
			})
			start := time.Now()
			_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
			require.ErrorContains(t, err, words)
			require.NotContains(t, err.Error(), "unknown error", "words in place of the code")
			require.True(t, zkutil.IsRefused(err))
			require.Less(t, time.Since(start), time.Second)
		})
	}
}

// An answer with an unknown code may be temporary. A waiter does not wait for ever because of it: after an operation
// timeout its caller gets it.
func TestUnknownAnswer(t *testing.T) {
	for name, op := range map[string]zktest.Op{"create": zktest.OpCreate2, "list": zktest.OpGetChildren2} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				allow := srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == op {
						return zktest.Fault{Refusal: unknownCode}
					}
					return zktest.Fault{}
				})
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(s.Config().OperationTimeout / 2)
				require.Empty(t, turn)
				allow()
				bubble.Pass(s.Config().Retry.MaxInterval * 3 / 2)
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Lease.Leave())

				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == op {
						return zktest.Fault{Refusal: unknownCode}
					}
					return zktest.Fault{}
				})
				start := time.Now()
				_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
				require.ErrorContains(t, err, "unknown error: -66")
				require.WithinDuration(t, start.Add(s.Config().OperationTimeout), time.Now(), s.Config().Retry.MaxInterval*3/2)
				bubble.Eventually(t, time.Minute, func() bool { return len(srv.Children("/m")) == 0 })
			})
		})
	}
}
