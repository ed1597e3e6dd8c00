package mutex_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// What Do returns comes in one line, and a loss first.
func TestResultOfDo(t *testing.T) {
	remove := func(srv *zktest.Server, lease *recipes.Lease) { srv.Delete(lease.Path()) }
	for name, c := range map[string]struct {
		spoil func(srv *zktest.Server, lease *recipes.Lease)
		end   func(ctx context.Context) error
		text  string
		is    []error
	}{
		"error": {func(*zktest.Server, *recipes.Lease) {}, func(context.Context) error { return errWork }, "no database", []error{errWork}},
		"loss":  {remove, func(context.Context) error { return nil }, "mutex: do /locks/a: znode deleted by someone else", []error{recipes.ErrNodeDeleted}},
		"loss, told by the context": {
			remove, func(ctx context.Context) error { return ctx.Err() },
			"mutex: do /locks/a: znode deleted by someone else; the function returned: context canceled",
			[]error{recipes.ErrNodeDeleted, context.Canceled},
		},
		"loss, and an error": {
			remove, func(context.Context) error { return errWork },
			"mutex: do /locks/a: znode deleted by someone else; the function returned: no database",
			[]error{recipes.ErrNodeDeleted, errWork},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				err := mutexOn(t, testclient.Connect(t, srv), "/locks/a").Do(t.Context(), func(ctx context.Context, lease *recipes.Lease) error {
					c.spoil(srv, lease)
					pass(time.Second)
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

// A release that the server does not confirm comes behind the function's error.
func TestResultOfDoWithAFailedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		err := mutexOn(t, testclient.Connect(t, srv), "/locks/a").Do(t.Context(), func(context.Context, *recipes.Lease) error {
			srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpDelete {
					return zktest.Fault{Lost: zktest.NoAnswer}
				}
				return zktest.Fault{}
			})
			return errWork
		})
		require.ErrorIs(t, err, errWork)
		require.ErrorIs(t, err, recipes.ErrNodeNotDeleted)
		require.Regexp(t, `^no database; lease: release /locks/a/_c_\S+: znode not deleted after 10s, deletion goes on: [^\n]+$`, err.Error())
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
			synctest.Test(t, func(t *testing.T) {
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
				_, err := mutexOn(t, stranger, "/locks/a").Acquire(t.Context())
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, c.text)
				require.ErrorContains(t, err, "wrong credentials")
				require.NotContains(t, err.Error(), "not authenticated")
			})
		})
	}
}
