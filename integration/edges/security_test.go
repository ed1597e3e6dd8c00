package edges_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// These are the lines of SECURITY.md. What an attacker can do, these tests do.

// protected is a client of the owner whose znodes no other user may touch.
func protected(t *testing.T, server string) *recipes.Client {
	t.Helper()
	return connect(t, server, credential(owner), recipes.WithACL(ownersOnly()...))
}

// An attacker who reaches a client port can end the session behind a lock, ACL or not, because the password
// follows from the id. The id is in the Stat of the lock's znode, which needs the permission to read from 3.9 on,
// and in the answer to dump, which needs none.
func TestSessionFollowsFromItsID(t *testing.T) {
	t.Parallel()
	server := shared(t)
	path := testkit.Path(t)
	lease := acquire(t, newMutex(t, protected(t, server), path))
	attacker := stranger(t, server)
	_, _, err := attacker.Get(lease.Path())
	require.ErrorIs(t, err, zk.ErrNoAuth, "may not read")
	dump, err := zkadmin.FourLetter(testkit.Context(t), server, "dump")
	require.NoError(t, err)
	found, stat, err := attacker.Exists(lease.Path())
	if !errors.Is(err, zk.ErrNoAuth) {
		require.NoError(t, err)
		require.True(t, found, "but look")
		require.Equal(t, stat.EphemeralOwner, ownerInDump(t, dump, lease.Path()))
	}

	require.NoError(t, zkadmin.Expire(testkit.Context(t), server, ownerInDump(t, dump, lease.Path())))
	// If the client reconnects at the moment of the attack, the server admits it, and the client sees the deletion of
	// its znode.
	cause := ended(t, lease)
	require.True(t, errors.Is(cause, recipes.ErrSessionLost) || errors.Is(cause, recipes.ErrNodeDeleted), cause)
	next := acquire(t, newMutex(t, protected(t, server), path))
	require.Greater(t, next.FencingToken(), lease.FencingToken(), "which is all that still tells the two apart")
	require.NoError(t, next.Release())
}

// ownerInDump finds the session of an ephemeral znode in the answer to dump: each id stands above the paths of the session.
func ownerInDump(t *testing.T, dump, path string) (id int64) {
	t.Helper()
	for line := range strings.Lines(dump) {
		if line == "\t"+path+"\n" {
			return id
		}
		if hex, isID := strings.CutPrefix(line, "0x"); isID {
			var err error
			id, err = strconv.ParseInt(strings.TrimSuffix(hex, ":\n"), 16, 64)
			if err != nil {
				id = 0 // a line of the list of sessions
			}
		}
	}
	require.Fail(t, "no owner", "%s in\n%s", path, dump)
	return 0
}

// The parent's ACL decides who may delete a znode. WithACL protects every parent that the client creates, and no
// existing one.
func TestDeleteIsCheckedOnTheParent(t *testing.T) {
	t.Parallel()
	server := shared(t)
	attacker := stranger(t, server)
	open := testkit.Path(t)
	_, err := attacker.Create(open, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	client := protected(t, server)
	stolen := acquire(t, newMutex(t, client, open))
	_, _, err = attacker.Get(stolen.Path())
	require.ErrorIs(t, err, zk.ErrNoAuth, "its own ACL is the owner's")
	require.NoError(t, attacker.Delete(stolen.Path(), -1))
	require.ErrorIs(t, ended(t, stolen), recipes.ErrNodeDeleted)

	// Below the owner's own parents, none of these attacks work.
	lease := acquire(t, newMutex(t, client, open+"-own/shop/lock"))
	require.ErrorIs(t, attacker.Delete(lease.Path(), -1), zk.ErrNoAuth)
	_, err = attacker.Create(open+"-own/shop/lock/lock-0000000000", nil, 0, zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	for _, parent := range []string{open + "-own/shop/lock", open + "-own/shop", open + "-own"} {
		_, err = attacker.SetACL(parent, zk.WorldACL(zk.PermAll), -1)
		require.ErrorIs(t, err, zk.ErrNoAuth, parent)
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release())
}

// Without WithACL every user may do everything, as in Curator.
func TestOpenByDefault(t *testing.T) {
	t.Parallel()
	server := shared(t)
	attacker := stranger(t, server)
	path := testkit.Path(t)
	lease := acquire(t, newMutex(t, connect(t, server), path+"/lock"))
	for _, node := range []string{path, path + "/lock", lease.Path()} {
		acl, _, err := attacker.GetACL(node)
		require.NoError(t, err)
		require.Equal(t, zk.WorldACL(zk.PermAll), acl, node)
	}
	require.NoError(t, attacker.Delete(lease.Path(), -1))
	require.ErrorIs(t, ended(t, lease), recipes.ErrNodeDeleted)
}

// A credential crosses the network as it is, and the server believes any.
func TestDigestInClearText(t *testing.T) {
	t.Parallel()
	server := shared(t)
	for _, user := range []string{owner, impostor} {
		var cable lines
		client := connect(t, server, credential(user), recipes.WithDialer(cable.dial))
		require.NoError(t, acquire(t, newMutex(t, client, testkit.Path(t))).Release(), "nobody has asked for a right yet")
		require.True(t, bytes.Contains(cable.sent(), []byte(user)))
	}
}

// A revocation is a write, so the permission to write the znode is the permission to ask, and only to ask.
func TestRevocationIsAWrite(t *testing.T) {
	t.Parallel()
	server := shared(t)
	asker := stranger(t, server)
	lease := acquire(t, newMutex(t, connect(t, server), testkit.Path(t)))
	_, err := asker.Set(lease.Path(), []byte("__REVOKE__"), -1)
	require.NoError(t, err)
	select {
	case <-lease.Revoked():
	case <-testkit.Context(t).Done():
		require.Fail(t, "not asked")
	}
	require.NoError(t, context.Cause(lease.Context()), "the holder decides")
	require.NoError(t, lease.Release())

	// Other users may read this one, but not ask.
	readable := append(ownersOnly(), zk.WorldACL(zk.PermRead)...)
	lease = acquire(t, newMutex(t, connect(t, server, credential(owner), recipes.WithACL(readable...)), testkit.Path(t)))
	_, _, err = asker.Get(lease.Path())
	require.NoError(t, err)
	_, err = asker.Set(lease.Path(), []byte("__REVOKE__"), -1)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, lease.Release())
}
