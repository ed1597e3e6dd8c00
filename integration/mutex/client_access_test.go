package mutex_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

func TestNamespace(t *testing.T) {
	root := testkit.Path(t) // absolute, of one segment
	for name, namespace := range map[string]string{
		"one segment":   root[1:],
		"leading slash": root,
		"two segments":  root[1:] + "/service",
		"none":          "",
	} {
		t.Run(name, func(t *testing.T) {
			client := direct(t, recipes.WithNamespace(namespace))
			prefix := ""
			if namespace != "" {
				prefix = "/" + namespace
			}
			if namespace == root {
				prefix = root
			}
			path := testkit.Path(t) + "/deep"
			m := newMutex(t, client, path)
			lease := acquire(t, m)
			require.Equal(t, []string{lease.Path()}, queue(t, prefix+path), "the namespace is part of Lease.Path")
			done := waiting(t, testkit.Context(t), m, prefix+path, 2)
			participants, err := m.Participants(testkit.Context(t))
			require.NoError(t, err)
			require.Len(t, participants, 2)
			require.Equal(t, lease.Path(), participants[0].Path)
			require.Equal(t, queue(t, prefix+path)[1], participants[1].Path)
			ok, _, err := observer(t).Exists(path)
			require.NoError(t, err)
			require.Equal(t, prefix == "", ok, "without the namespace there is nothing")

			// A Revoker takes full paths, as they are handed out.
			require.NoError(t, revoke.New(client).AttemptRevoke(testkit.Context(t), lease.Path()))
			revoked(t, lease)
			require.NoError(t, revoke.New(direct(t)).AttemptRevoke(testkit.Context(t), participants[1].Path))
			_, err = client.Conn().Multi(lease.Check())
			require.NoError(t, err)
			require.NoError(t, lease.Release())
			next := granted(t, done)
			revoked(t, next)
			require.NoError(t, next.Release())
		})
	}
}

// TestNamespacesExclude addresses one znode in two ways, which is one lock.
func TestNamespacesExclude(t *testing.T) {
	root := testkit.Path(t)
	outside := acquire(t, newMutex(t, direct(t), root+"/lock"))
	inside := newMutex(t, direct(t, recipes.WithNamespace(root)), "/lock")
	_, err := inside.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	require.NoError(t, outside.Release())
	require.NoError(t, acquire(t, inside).Release())
	top := newMutex(t, direct(t, recipes.WithNamespace(root)), "/")
	lease := acquire(t, top)
	require.Contains(t, queueOfContenders(t, root), lease.Path())
	require.NoError(t, lease.Release())
}

// queueOfContenders is queue without the children that are no contenders.
func queueOfContenders(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, child := range queue(t, path) {
		if len(child) > 10 && child[len(child)-11] == '-' {
			found = append(found, child)
		}
	}
	return found
}

const (
	user     = "shop:right"
	stranger = "shop:wrong"
)

// digest is the ACL of everything that the user creates.
func digest() recipes.Option {
	return recipes.WithACL(zk.DigestACL(zk.PermAll, "shop", "right")...)
}

// authorised returns a client with the ACL and a credential.
func authorised(t *testing.T, server, credential string, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, []string{server}, append(opts, recipes.WithSessionTimeout(sessionTimeout), digest(), recipes.WithAuth("digest", []byte(credential)))...)
}

// guardian is a plain connection that presents the user's credential.
func guardian(t *testing.T) *zk.Conn {
	t.Helper()
	conn := observer(t)
	require.NoError(t, conn.AddAuth("digest", []byte(user)))
	return conn
}

func TestACL(t *testing.T) {
	server := ensemble.Shared(t).Server(0)
	client := authorised(t, server, user)
	root := testkit.Path(t)
	path := root + "/middle/lock"
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	defer func() { require.NoError(t, lease.Release()) }()
	conn := guardian(t)
	for _, node := range []string{root, root + "/middle", path, lease.Path()} {
		acl, _, err := conn.GetACL(node)
		require.NoError(t, err, node)
		require.Equal(t, zk.DigestACL(zk.PermAll, "shop", "right"), acl, node)
	}

	for name, other := range map[string]*recipes.Client{
		"no credential":    direct(t),
		"wrong credential": authorised(t, server, stranger),
	} {
		began := time.Now()
		m := newMutex(t, other, path)
		_, err := m.Acquire(testkit.Context(t))
		require.ErrorIs(t, err, zk.ErrNoAuth, name)
		var op *recipes.OpError
		require.ErrorAs(t, err, &op, name)
		require.Equal(t, path, op.Path)
		_, err = m.TryAcquire(testkit.Context(t))
		require.ErrorIs(t, err, zk.ErrNoAuth, name)
		_, err = m.Participants(testkit.Context(t))
		require.ErrorIs(t, err, zk.ErrNoAuth, name)
		require.ErrorIs(t, revoke.New(other).AttemptRevoke(testkit.Context(t), lease.Path()), zk.ErrNoAuth, name)
		require.Less(t, time.Since(began), 10*time.Second, "a refusal is no reason to try again")
	}
	names, _, err := conn.Children(path)
	require.NoError(t, err)
	require.Len(t, names, 1, "the strangers have left nothing")
	notRevoked(t, lease)
	stands(t, lease)

	// Another client with the right credential contends and may ask.
	peer := authorised(t, server, user)
	require.NoError(t, revoke.New(peer).AttemptRevoke(testkit.Context(t), lease.Path()))
	revoked(t, lease)
	_, err = newMutex(t, peer, path).TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
}

// TestACLWithoutCredential creates znodes that the client itself may not touch.
func TestACLWithoutCredential(t *testing.T) {
	client := direct(t, digest())
	path := testkit.Path(t)
	_, err := newMutex(t, client, path).Acquire(testkit.Context(t))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	found, _, err := guardian(t).Exists(path)
	require.NoError(t, err)
	require.False(t, found, "the directory that was made in vain is gone too")
}

func TestCredentialsSurviveReconnects(t *testing.T) {
	client, proxy := proxiedFor(t, calm, digest(), recipes.WithAuth("digest", []byte(user)))
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	for range 3 {
		lease := acquire(t, m)
		cutAndReconnect(t, client, proxy)
		inner, err := m.TryAcquire(testkit.Context(t))
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
		require.Nil(t, inner)
		require.NoError(t, lease.Release())
	}
	expire(t, client)
	require.NoError(t, acquire(t, m).Release(), "in a new session too")
	names, _, err := guardian(t).Children(path)
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestTwoCredentials: each of them counts.
func TestTwoCredentials(t *testing.T) {
	server := ensemble.Shared(t).Server(0)
	path := testkit.Path(t)
	lease := acquire(t, newMutex(t, authorised(t, server, user), path))
	both := authorised(t, server, stranger, recipes.WithAuth("digest", []byte(user)))
	_, err := newMutex(t, both, path).TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	require.NoError(t, lease.Release())
}

func TestUnknownAuthScheme(t *testing.T) {
	began := time.Now()
	client, err := recipes.Connect(testkit.Context(t), ensemble.Shared(t).Servers(), recipes.WithAuth("nosuchscheme", []byte("secretpassword")))
	require.Error(t, err)
	require.Nil(t, client)
	require.ErrorContains(t, err, "nosuchscheme")
	require.NotContains(t, err.Error(), "secretpassword")
	t.Log(err, time.Since(began))
	require.ErrorIs(t, err, zk.ErrAuthFailed)
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestReadOnlyRights: children can be listed but not made.
func TestReadOnlyRights(t *testing.T) {
	path := testkit.Path(t)
	_, err := observer(t).Create(path, nil, 0, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	m := newMutex(t, direct(t), path)
	_, err = m.Acquire(testkit.Context(t))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	participants, err := m.Participants(testkit.Context(t))
	require.NoError(t, err)
	require.Empty(t, participants)
}

// revoked waits for a lease's revocation.
func revoked(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	testkit.Receive(t, lease.Revoked(), "the revocation")
}

func notRevoked(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	select {
	case <-lease.Revoked():
		require.Fail(t, "revoked")
	default:
	}
}
