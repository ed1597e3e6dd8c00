package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A second znode of one create is charged until it is deleted.
func TestTwinCounts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.MaxBytes = 2 * session.BytesOf("/m", "lock-")
		s := fixture.Connect(t, cfg)
		srv.Put("/m", nil)
		isMade := false
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			names := srv.Children("/m")
			if r.Op == zktest.OpGetChildren2 && len(names) == 1 && !isMade {
				isMade = true
				srv.Put("/m/"+fixture.TwinOf(names[0], "0000000009"), nil)
			}
			if r.Op == zktest.OpDelete && r.Path[len(r.Path)-1] == '9' {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.True(t, isMade)
		require.Equal(t, budget.Usage{Used: cfg.MaxBytes, Directories: 1, Nodes: 2}, s.Budget().Usage())
		_, err := fixture.MutexOn(s, "/n").Acquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrSessionFull)
		require.NoError(t, e.Leave())
		e = bubble.Acquire(t, fixture.MutexOn(s, "/n").Acquire)
		require.NoError(t, e.Leave())
		require.Equal(t, 1, s.Budget().Usage().Nodes)
	})
}
