package session_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The server reaps no container that never had a child. So a parent created for a refused child is deleted, unless
// another client uses it by then.
func TestParentsMadeInVainAreRemoved(t *testing.T) {
	expected := map[bool]map[string][]string{
		false: {"/there": {"before"}},
		true:  {"/there": {"a", "before"}, "/there/a/b/c": {"other"}},
	}
	for name, used := range map[string]bool{"nobody uses them": false, "somebody does": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(30*time.Second))
				srv.Put("/there/before", nil)
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpCreate2 {
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
				_, err := fixture.MutexOn(s, "/there/a/b/c").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				for path, children := range expected[used] {
					require.ElementsMatch(t, children, srv.Children(path), path)
				}
			})
		})
	}
}

// The parent may be refused as well, halfway down.
func TestParentsMadeInVainHalfway(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if _, _, made := srv.Get("/a"); made && r.Path == "/a/b" {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := fixture.MutexOn(s, "/a/b/c").Acquire(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotContains(t, srv.Children("/"), "a")
	})
}

// Children of other clients in our parent are kept, and a parent whose state was unknown between two attempts is
// still removed.
func TestParentsMadeInVainThroughFaults(t *testing.T) {
	tests := map[string]struct {
		atChild func(srv *fixture.Ensemble) zktest.Fault // at the first create of the child
		stays   bool
	}{
		"with data":         {func(srv *fixture.Ensemble) zktest.Fault { srv.Put("/a", []byte("mine")); return zktest.Fault{} }, true},
		"after a lost call": {func(*fixture.Ensemble) zktest.Fault { return zktest.Fault{Lost: zktest.RequestLost} }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(30*time.Second))
				first := true
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					_, _, made := srv.Get("/a")
					if r.Op != zktest.OpCreate2 || !made {
						return zktest.Fault{}
					}
					f := zktest.Fault{}
					if first {
						first = false
						f = tt.atChild(srv)
					}
					if f.Lost == 0 {
						f.Refusal = zktest.RefuseNoAuth
					}
					return f
				})
				_, err := fixture.MutexOn(s, "/a").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				_, _, there := srv.Get("/a")
				require.Equal(t, tt.stays, there)
			})
		})
	}
}

// Another client may delete and replace the directories between any two attempts. A directory that the other client created is
// not removed, and one that was created twice does not keep the outer ones from being removed.
func TestParentsReplacedInBetween(t *testing.T) {
	for name, tt := range map[string]struct {
		replace func(srv *fixture.Ensemble)
		left    []string
	}{
		"deleted":                  {func(srv *fixture.Ensemble) { srv.Delete("/a/b") }, nil},
		"all deleted":              {func(srv *fixture.Ensemble) { srv.Delete("/a") }, nil},
		"replaced":                 {func(srv *fixture.Ensemble) { srv.Delete("/a/b"); srv.Put("/a/b", nil) }, []string{"b"}},
		"all deleted, both remade": {func(srv *fixture.Ensemble) { srv.Delete("/a"); srv.Put("/a/b", nil) }, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(30*time.Second))
				creates := 0
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					_, _, isMade := srv.Get("/a/b")
					switch {
					case r.Op == zktest.OpCreate2 && isMade && creates == 0:
						creates++
						srv.Delete("/a/b") // so that the directory is missing, and made once more
					case r.Op == zktest.OpCreate2 && isMade:
						return zktest.Fault{Refusal: zktest.RefuseNoAuth}
					case r.Op == zktest.OpCreateContainer && r.Path == "/a/b" && creates == 1:
						creates++
						tt.replace(srv)
					}
					return zktest.Fault{}
				})
				_, err := fixture.MutexOn(s, "/a/b").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				if tt.left == nil {
					require.NotContains(t, srv.Children("/"), "a")
					return
				}
				require.Contains(t, srv.Children("/"), "a")
				require.ElementsMatch(t, tt.left, srv.Children("/a"))
			})
		})
	}
}
