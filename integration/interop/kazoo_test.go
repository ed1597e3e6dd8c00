package interop_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Curator sorts a name without "lock-" by the whole name, which begins with random hex digits, so it does not wait for an older
// znode of kazoo. Our locks, and zk.Lock's, know kazoo's names, but that does not help with a Curator client in the queue.
func TestCuratorPassesOverKazoosNames(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	kazoo := kazooOwn.open(t, options{}).contender(t, path, "kazoo")
	curator := javaLang.open(t, options{}).contender(t, path, "Curator")
	ours := golang.open(t, options{}).contender(t, path, "Go")

	start(kazoo).granted(t, "kazoo")
	got, err := ours.try()
	require.NoError(t, err)
	require.False(t, got, "Go waits for kazoo")
	got, err = curator.try()
	require.NoError(t, err)
	require.True(t, got, "Curator does not: two hold the lock")
	require.Len(t, queue(t, path), 2)
	require.NoError(t, kazoo.unlock())

	// In the other direction kazoo waits, because it is configured with Curator's names.
	wait := behind(t, kazoo, path, "kazoo")
	require.NoError(t, curator.unlock())
	wait.granted(t, "kazoo")
	require.NoError(t, kazoo.unlock())
	require.Empty(t, queue(t, path))
}

// kazoo waits only for its own names by default, and with Curator's names configured for those, too.
func TestKazooByDefaultSeesNoOtherContender(t *testing.T) {
	t.Parallel()
	path := plainPath(t)
	kazoo := kazooAlone.open(t, options{}).contender(t, path, "kazoo")
	for _, l := range languages {
		other := l.open(t, options{}).contender(t, path, l.name)
		start(other).granted(t, l.name)
		got, err := kazoo.try()
		require.NoError(t, err)
		require.True(t, got, "kazoo beside %s: two hold the lock", l.name)
		require.NoError(t, other.unlock())
		if l.tries && l.name != javaLang.name {
			got, err = other.try()
			require.NoError(t, err)
			require.Equal(t, l.name == pythonLang.name, got, "%s beside kazoo", l.name)
			if got {
				require.NoError(t, other.unlock())
			}
		}
		require.NoError(t, kazoo.unlock())
	}
}

// A lock object of kazoo creates the parents once. If they are containers, as from Go and Curator, the server removes them
// after a time without use. Then the object fails, and a new one works.
func TestKazooNeedsItsParents(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	session := pythonLang.open(t, options{})
	kazoo := session.contender(t, path, "kazoo")
	chain(t, path, []contender{golang.open(t, options{}).contender(t, path, "Go"), kazoo}, func([]string) {})
	reaped(t, path)
	require.ErrorContains(t, kazoo.lock(), "NoNodeError")
	again := session.contender(t, path, "kazoo")
	require.NoError(t, again.lock())
	require.NoError(t, again.unlock())
}

// reaped waits until the server removes an empty container.
func reaped(t *testing.T, path string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		_, err := theWorld(t).observer.Sync(path)
		require.NoError(t, err)
		_, _, err = theWorld(t).observer.Get(path)
		return err == zk.ErrNoNode //nolint:errorlint // zk.Conn returns the value itself
	}, "the container is removed")
}
