package revoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A client with a namespace asks a holder by the full path that the API returned, or by the path below its namespace, like all
// other paths of the API. It can ask a holder outside its namespace, too.
func TestAttemptRevokeBelowANamespace(t *testing.T) {
	for _, namespace := range []string{"", "prod", "prod/eu"} {
		for name, pathOf := range map[string]func(znode string) string{
			"as handed out":       func(znode string) string { return znode },
			"below the namespace": func(znode string) string { return znode[len("/"+namespace):] },
		} {
			if namespace == "" && name != "as handed out" {
				continue
			}
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client(recipes.WithNamespace(namespace))
				m, err := mutex.New(client, "/locks/a")
				require.NoError(b, err)
				lease := bubble.Acquire(b, m.Acquire)
				require.NoError(b, revoke.New(client).AttemptRevoke(b.Context(), pathOf(lease.Path())))
				<-lease.Revoked()
				b.Release(lease)
				require.NoError(b, revoke.New(client).AttemptRevoke(b.Context(), pathOf(lease.Path())), "gone already")

				outside, err := mutex.New(b.Client(), "/locks/b")
				require.NoError(b, err)
				lease = bubble.Acquire(b, outside.Acquire)
				require.NoError(b, revoke.New(client).AttemptRevoke(b.Context(), lease.Path()))
				<-lease.Revoked()
				b.Release(lease)
			})
		}
	}
}

// Where both readings of a path name a znode, a path that begins with the namespace is one on the server, and any other is below the
// namespace.
func TestAttemptRevokeOfAnAmbiguousPath(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithNamespace("a"))
		for _, dir := range []string{"/a", "/a/a", "/b", "/a/b"} {
			b.Srv.Put(dir, nil)
			b.Srv.Put(dir+"/lock-0000000001", nil)
		}
		for path, want := range map[string]string{"/a/lock-0000000001": "/a/lock-0000000001", "/b/lock-0000000001": "/a/b/lock-0000000001"} {
			log := b.Srv.Observe()
			require.NoError(b, revoke.New(client).AttemptRevoke(b.Context(), path))
			var written []string
			for _, r := range log.Requests() {
				if r.Op == zktest.OpSetData {
					written = append(written, r.Path)
				}
			}
			log.Stop()
			require.Equal(b, []string{want}, written)
		}
	})
}
