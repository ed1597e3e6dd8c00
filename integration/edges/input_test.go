package edges_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// atOnce is how long a refusal may take on a busy machine; an endless retry takes as
// long as the context allows.
const atOnce = 5 * time.Second

// Bad input is refused by the call that gets it, before anything is sent.
func TestBadInputIsRefusedAtTheCall(t *testing.T) {
	server := shared(t)
	check := unchanged(t, server)
	proxy := faultproxy.New(t, server)
	client := connect(t, proxy.Addr())
	sent := proxy.Counts().Total()
	for _, path := range []string{
		"", "locks", "locks/a", "./a", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b",
		"/a\x00b", "/a\nb", "/a\x7f", "/a\ufff0", "/a\U0001F512", "/a\xff", "/zookeeper", "/zookeeper/quota",
		"/" + strings.Repeat("a", 1<<20),
	} {
		for op, create := range constructors() {
			refused(t, create(client, path, 1), op, path, recipes.ErrInvalidPath, recipes.ErrInvalidArgument)
		}
		err := revoke.New(client).AttemptRevoke(testkit.Context(t), path)
		refused(t, err, "revoke: attempt", path, recipes.ErrInvalidPath, recipes.ErrInvalidArgument)
	}
	// The root is a path, but no contender's znode; nor is a lock's directory.
	for _, path := range []string{"/", "/locks/a", "/locks/a/config"} {
		err := revoke.New(client).AttemptRevoke(testkit.Context(t), path)
		refused(t, err, "revoke: attempt", path, recipes.ErrInvalidPath, recipes.ErrInvalidArgument)
	}
	for op, create := range constructors() {
		for what, none := range map[string]*recipes.Client{"the client is nil": nil, "the client is a zero value": {}} {
			err := create(none, "/locks/a", 1)
			refused(t, err, op, "/locks/a", recipes.ErrInvalidArgument)
			require.ErrorContains(t, err, what)
		}
		err := create(client, "/locks/a", 64<<10+1)
		refused(t, err, op, "/locks/a", recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, "id of 65537 bytes")
		require.Less(t, len(err.Error()), 200)
	}
	refused(t, revoke.New(nil).AttemptRevoke(testkit.Context(t), "/l/lock-0000000000"), "revoke: attempt", "/l/lock-0000000000", recipes.ErrInvalidArgument)
	refused(t, newMutex(t, client, "/locks/a").Do(testkit.Context(t), nil), "mutex: do", "/locks/a", recipes.ErrInvalidArgument)
	require.Equal(t, sent, proxy.Counts().Total(), "something was sent")
	check(t, "bad input")
}

// refused requires a matching error that names the operation and the path.
func refused(t *testing.T, err error, op, path string, matches ...error) {
	t.Helper()
	var failed *recipes.OpError
	require.ErrorAs(t, err, &failed, "%s %.40q", op, path)
	require.Equal(t, op, failed.Op)
	require.Equal(t, path, failed.Path)
	for _, target := range matches {
		require.ErrorIs(t, err, target)
	}
}

// The largest id that is let through is no trouble for the server.
func TestTheLargestID(t *testing.T) {
	client := connect(t, shared(t))
	path := testkit.Path(t)
	id := strings.Repeat("x", 64<<10)
	m := newMutex(t, client, path, mutex.WithID(id))
	lease := acquire(t, m)
	queue, err := m.Participants(testkit.Context(t))
	require.NoError(t, err)
	require.Equal(t, id, queue[0].ID)
	require.NoError(t, lease.Release())
}

// An operation forbidden by the server fails at once, and leaves no trace.
func TestForbidden(t *testing.T) {
	server := shared(t)
	path := testkit.Path(t)
	held := path + "/held"
	lease := acquire(t, newMutex(t, connect(t, server, credential(owner), recipes.WithACL(ownersOnly()...)), held))
	conn := ownersConn(t, server)
	put := func(path string, flags int32, acl []zk.ACL) string {
		_, err := conn.Create(path, nil, flags, acl)
		require.NoError(t, err)
		return path
	}
	readOnly := put(testkit.Path(t)+"-read", 0, zk.WorldACL(zk.PermRead))
	blind := put(testkit.Path(t)+"-blind", 0, append(ownersOnly(), zk.WorldACL(zk.PermCreate|zk.PermDelete)...))
	ephemeral := put(testkit.Path(t)+"-ephemeral", zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	fresh := testkit.Path(t) + "-fresh"
	for _, test := range []struct {
		name  string
		path  string
		calls map[string]call
		want  error
		opts  []recipes.Option
	}{
		{"no credential", held, all(), zk.ErrNoAuth, nil},
		{"a wrong password", held, all(), zk.ErrNoAuth, []recipes.Option{credential(impostor), recipes.WithACL(ownersOnly()...)}},
		{"a wrong password, and nothing there yet", fresh, acquisitions(), zk.ErrNoAuth, []recipes.Option{credential(impostor), recipes.WithACL(ownersOnly()...)}},
		{"the same, deep down", fresh + "/a/b/c", acquisitions(), zk.ErrNoAuth, []recipes.Option{credential(impostor), recipes.WithACL(ownersOnly()...)}},
		{"an ACL that shuts ourselves out", fresh, acquisitions(), zk.ErrNoAuth, []recipes.Option{recipes.WithACL(zk.WorldACL(zk.PermAdmin)...)}},
		{"an ACL that hides our own znode", fresh, acquisitions(), zk.ErrNoAuth, []recipes.Option{recipes.WithACL(zk.WorldACL(zk.PermCreate | zk.PermDelete)...)}},
		{"no right to create", readOnly, acquisitions(), zk.ErrNoAuth, nil},
		{"no right to create the parent", readOnly + "/a/b", acquisitions(), zk.ErrNoAuth, nil},
		{"no right to list", blind, acquisitions(), zk.ErrNoAuth, nil},
		{"an unknown scheme in the ACL", fresh, acquisitions(), zk.ErrInvalidACL, []recipes.Option{recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "nosuch", ID: "x"})}},
		{"an ACL for whom we are, who are nobody", fresh, acquisitions(), zk.ErrInvalidACL, []recipes.Option{recipes.WithACL(zk.AuthACL(zk.PermAll)...)}},
		{"an ephemeral parent", ephemeral, acquisitions(), zk.ErrNoChildrenForEphemerals, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			check := unchanged(t, server)
			client := connect(t, server, test.opts...)
			for op, call := range test.calls {
				began := time.Now()
				err := call(situation{t, testkit.Context(t), client, test.path, lease.Path()})
				require.Less(t, time.Since(began), atOnce, op)
				require.ErrorIs(t, err, test.want, op)
				var failed *recipes.OpError
				require.ErrorAs(t, err, &failed, op)
				check(t, op)
			}
		})
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release())
}

// Every call on a closed client says so.
func TestClosedClient(t *testing.T) {
	server := shared(t)
	check := unchanged(t, server)
	client := connect(t, server)
	require.NoError(t, client.Close())
	for op, call := range all() {
		require.ErrorIs(t, call(situation{t, testkit.Context(t), client, "/locks/a", "/locks/a/lock-0000000000"}), recipes.ErrClosed, op)
	}
	check(t, "a closed client")
}
