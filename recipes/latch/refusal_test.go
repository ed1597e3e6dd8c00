package latch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// forbid makes the server refuse an operation.
func forbid(srv *zktest.Server, op zktest.Op) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			return zktest.Fault{Refusal: zktest.RefuseNoAuth}
		}
		return zktest.Fault{}
	})
}

// Where the server refuses for good the owner gets to know, and there is no loop.
func TestRefusalEndsTheCampaign(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, srv *zktest.Server){
		"no right to create below the parent": func(t *testing.T, srv *zktest.Server) {
			t.Helper()
			srv.Put("/services", nil)
			owner := connect(t, srv, recipes.WithAuth("digest", []byte("owner:secret")))
			_, err := owner.Conn().Create(election, nil, 0, zk.AuthACL(zk.PermAll))
			require.NoError(t, err)
		},
		"no right to create the parent": func(t *testing.T, srv *zktest.Server) { t.Helper(); forbid(srv, zktest.OpCreateContainer) },
		"no right to list":              func(t *testing.T, srv *zktest.Server) { t.Helper(); forbid(srv, zktest.OpGetChildren2) },
		"no right to read":              func(t *testing.T, srv *zktest.Server) { t.Helper(); forbid(srv, zktest.OpGetData) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				prepare(t, srv)
				log := srv.Observe()
				l := enter(t, connect(t, srv), latch.WithListener(latch.Listener{
					IsLeader: func(*recipes.Lease) { t.Error("leads") },
				}))
				_, err := l.Await(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "latch: await "+election)
				pass(10 * time.Minute)
				require.LessOrEqual(t, log.Count(), 8) // with the parents, and to clean up
				require.True(t, isDecided(l))
				require.False(t, l.HasLeadership())
				require.NoError(t, l.Close())
				require.Empty(t, srv.Children(election))
			})
		})
	}
}

// The right is lost while the latch waits: what it has stays in force as long as possible.
func TestRefusalWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := lead(t, connect(t, srv))
		second := enter(t, connect(t, srv))
		<-second.Decided()
		third := enter(t, connect(t, srv))
		<-third.Decided()
		allow := forbid(srv, zktest.OpGetChildren2)
		require.NoError(t, second.Close())
		_, err := third.Await(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.True(t, first.HasLeadership())
		allow()
		require.NoError(t, third.Close())
		require.Len(t, srv.Children(election), 1)
	})
}

// When the sequence numbers have run out the order of participants means nothing.
func TestExhaustedSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(election, nil)
		srv.SetSequence(election, 1<<31-1)
		l := enter(t, connect(t, srv))
		_, err := l.Await(t.Context())
		require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
		require.NoError(t, l.Close())
		require.Empty(t, srv.Children(election))
	})
}

func TestNewRefusesBadOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := connect(t, srv)
		for want, opt := range map[string]latch.Option{
			"nil option":                      nil,
			"id of 65537 bytes":               latch.WithID(string(make([]byte, 64<<10+1))),
			"close mode 2 is unknown":         latch.WithCloseMode(2),
			"step-down grace: not positive":   latch.WithStepDownGrace(0),
			"latch: new /services/billing: n": nil,
		} {
			_, err := latch.New(client, election, opt)
			require.ErrorContains(t, err, want)
		}
		_, err := latch.New(nil, election)
		require.ErrorContains(t, err, "the client is nil")

		l, err := latch.New(client, election)
		require.NoError(t, err)
		require.ErrorIs(t, l.CloseWith(2), recipes.ErrInvalidArgument)
		require.NoError(t, l.Close())
	})
}
