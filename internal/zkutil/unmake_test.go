package zkutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The server reaps no container that never had a child. So what was made for a child
// that is then refused goes again, unless somebody else uses it by then.
func TestParentsMadeInVainAreRemoved(t *testing.T) {
	for name, used := range map[string]bool{"nobody uses them": false, "somebody does": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				s := connect(t, srv.config(30*time.Second))
				srv.Put("/there/before", nil)
				srv.onRequest(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpCreate {
						return zktest.Fault{}
					}
					if _, _, made := srv.Get("/there/a/b/c"); !made {
						return zktest.Fault{}
					}
					if used {
						srv.Put("/there/a/b/c/other", nil)
					}
					return zktest.Fault{Refusal: zktest.RefuseNoAuth}
				})
				_, err := mutexOn(s, "/there/a/b/c").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				if used {
					require.Equal(t, []string{"other"}, srv.Children("/there/a/b/c"))
				} else {
					require.Equal(t, []string{"before"}, srv.Children("/there"))
				}
			})
		})
	}
}

// The parent may be refused as well, halfway down.
func TestParentsMadeInVainHalfway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if _, _, made := srv.Get("/a"); made && r.Path == "/a/b" {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := mutexOn(s, "/a/b/c").Acquire(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotContains(t, srv.Children("/"), "a")
	})
}
