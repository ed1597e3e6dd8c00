package recipe_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The error of Do is on one line, with a loss first.
func TestResultOfDo(t *testing.T) {
	remove := func(srv *zktest.Server, lease *recipes.Lease) { srv.Delete(lease.Path()) }
	for name, c := range map[string]struct {
		spoil func(srv *zktest.Server, lease *recipes.Lease)
		end   func(ctx context.Context) error
		text  string
		is    []error
	}{
		"error": {func(*zktest.Server, *recipes.Lease) {}, func(context.Context) error { return locks.ErrWork }, "no database", []error{locks.ErrWork}},
		"loss":  {remove, func(context.Context) error { return nil }, "mutex: do /locks/a: znode deleted by another client", []error{recipes.ErrNodeDeleted}},
		"loss, told by the context": {
			remove, func(ctx context.Context) error { return ctx.Err() },
			"mutex: do /locks/a: znode deleted by another client; the function returned: context canceled",
			[]error{recipes.ErrNodeDeleted, context.Canceled},
		},
		"loss, and an error": {
			remove, func(context.Context) error { return locks.ErrWork },
			"mutex: do /locks/a: znode deleted by another client; the function returned: no database",
			[]error{recipes.ErrNodeDeleted, locks.ErrWork},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				err := locks.MutexOn(t, testclient.Connect(t, srv), "/locks/a").Do(t.Context(), func(ctx context.Context, lease *recipes.Lease) error {
					c.spoil(srv, lease)
					bubble.Pass(time.Second)
					return c.end(ctx)
				})
				require.EqualError(t, err, c.text)
				for _, is := range c.is {
					require.ErrorIs(t, err, is)
				}
			})
		})
	}
}

// A release that the server does not confirm is a record in the log, not an error of the work.
func TestResultOfDoWithAFailedRelease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		client := testclient.Connect(t, srv, recipes.WithSessionTimeout(time.Minute), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		err := locks.MutexOn(t, client, "/locks/a").Do(t.Context(), func(context.Context, *recipes.Lease) error {
			srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpDelete {
					return zktest.Fault{Lost: zktest.NoAnswer}
				}
				return zktest.Fault{}
			})
			return locks.ErrWork
		})
		require.Equal(t, locks.ErrWork, err)
		bubble.Pass(0)
		require.Regexp(t, `level=WARN msg="znode not deleted yet; retrying" znode=/locks/a/_c_\S+ after=10s err=.+`, strings.Join(log.Take(), "\n"))
	})
}

// A missing permission names the znode whose ACL refuses, and matches zk.ErrNoAuth.
func TestMissingPermissionNamesTheZnode(t *testing.T) {
	digest := func(perms int32) []zk.ACL { return zk.DigestACL(perms, "owner", "secret") }
	for name, c := range map[string]struct {
		path string
		acl  []zk.ACL
		text string
	}{
		"parent of the directory": {"/locks", digest(zk.PermAll), "no permission to create children of /locks "},
		"directory":               {"/locks/a", digest(zk.PermAll), "no permission to create children of /locks/a "},
		"list":                    {"/locks/a", zk.WorldACL(zk.PermCreate | zk.PermDelete), "no permission to list the children of /locks/a "},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				admin := testclient.Connect(t, srv)
				for _, path := range []string{"/locks", "/locks/a"} {
					acl := zk.WorldACL(zk.PermAll)
					if path == c.path {
						acl = c.acl
					}
					_, err := admin.Conn().Create(path, nil, 0, acl)
					require.NoError(t, err)
					if path == c.path {
						break
					}
				}
				stranger := testclient.Connect(t, srv, recipes.WithAuth("digest", []byte("owner:wrong")))
				_, err := locks.MutexOn(t, stranger, "/locks/a").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, c.text)
				require.ErrorContains(t, err, "wrong credentials")
				require.NotContains(t, err.Error(), "not authenticated")
			})
		})
	}
}
