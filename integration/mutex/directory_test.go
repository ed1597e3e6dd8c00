package mutex_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// A stranger at another server replaces the lock's directory, in one transaction, by one in which the numbers continue and the
// stranger is first. A client that was alone in the old directory, and joins after that, does not get the lock.
func TestDirectoryReplacedBetweenAcquisitions(t *testing.T) {
	servers := ensemble.New(t, ensemble.Config{Nodes: 3})
	client := testclient.Dial(t, []string{servers.Server(0)}, recipes.WithSessionTimeout(longSession))
	stranger := testkit.Conn(t, []string{servers.Server(1)}, longSession)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	first, behind := 0, 0 // rounds in which the client preceded the stranger, and followed it
	for range 60 {
		last := 0
		for range 6 {
			last = use(t, m)
		}
		replaced := make(chan error, 1)
		go func() { replaced <- replaceDirectory(stranger, path, last) }() // ends with the transaction; joined below
		for range rand.IntN(4) {
			_, _, err := stranger.Exists("/") // to vary the order
			require.NoError(t, err)
		}
		lease, err := m.TryAcquire(testkit.Context(t))
		if err := <-replaced; err == nil {
			behind++
		} else {
			require.ErrorIs(t, err, zk.ErrNotEmpty)
			first++
		}
		if err == nil {
			require.Len(t, namesIn(t, stranger, path), 1, "the stranger is ahead")
			require.NoError(t, lease.Release())
		} else {
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
		}
		for _, name := range namesIn(t, stranger, path) {
			require.NoError(t, stranger.Delete(path+"/"+name, -1))
		}
		require.NoError(t, stranger.Delete(path, -1))
	}
	t.Logf("first in %d rounds, behind in %d", first, behind)
	require.Positive(t, behind)
}

// A client loses the permission to read the lock's directory, and keeps trying for four session timeouts. Then a stranger
// replaces the directory, which the server does not report to the client, and gets the lock. The client does not.
func TestDirectoryReplacedAfterReadWasTaken(t *testing.T) {
	const timeout = 4 * time.Second
	server := ensemble.Shared(t).Server(0)
	client := testclient.Dial(t, []string{server}, recipes.WithSessionTimeout(timeout))
	stranger := testkit.Conn(t, []string{server}, longSession)
	path := testkit.Path(t)
	_, err := stranger.Create(path, nil, 0, zk.WorldACL(zk.PermAll)) // no container, which the servers would remove
	require.NoError(t, err)
	m := newMutex(t, client, path)
	last := 0
	for range 6 {
		last = use(t, m)
	}
	_, err = stranger.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
	require.NoError(t, err)
	for end := time.Now().Add(4 * timeout); time.Now().Before(end); time.Sleep(timeout / 10) { //nolint:forbidigo // the pace of the client
		lease, err := m.TryAcquire(testkit.Context(t))
		if err != nil {
			require.ErrorIs(t, err, zk.ErrNoAuth)
			continue
		}
		last = numberOf(t, lease)
		require.NoError(t, lease.Release())
	}
	require.NoError(t, replaceDirectory(stranger, path, last))
	_, err = m.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
}

// use acquires and releases the lock, and returns the number of the znode.
func use(t *testing.T, m *mutex.InterProcessMutex) (number int) {
	t.Helper()
	lease := acquire(t, m)
	require.NoError(t, lease.Release())
	return numberOf(t, lease)
}

func numberOf(t *testing.T, lease *recipes.Lease) int {
	t.Helper()
	number, err := strconv.Atoi(lease.Path()[len(lease.Path())-10:])
	require.NoError(t, err)
	return number
}

// replaceDirectory replaces an empty directory by another one, in which a contender has a number and is first.
func replaceDirectory(conn *zk.Conn, path string, number int) error {
	acl := zk.WorldACL(zk.PermAll)
	ops := []any{&zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Acl: acl}}
	for i := range number {
		child := fmt.Sprintf("%s/x%d", path, i)
		ops = append(ops, &zk.CreateRequest{Path: child, Acl: acl}, &zk.DeleteRequest{Path: child, Version: -1})
	}
	ops = append(ops, &zk.CreateRequest{Path: path + "/lock-", Acl: acl, Flags: zk.FlagEphemeral | zk.FlagSequence})
	_, err := conn.Multi(ops...)
	return err
}

func namesIn(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	_, err := conn.Sync(path)
	require.NoError(t, err)
	names, _, err := conn.Children(path)
	require.NoError(t, err)
	return names
}
