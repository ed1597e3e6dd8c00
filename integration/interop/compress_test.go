package interop_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// TestCompressingCurator shows the limits of a Curator client that compresses everything, together with other clients,
// including Curator's own that don't. The lock is exclusive even so.
func TestCompressingCurator(t *testing.T) {
	t.Parallel()
	java := theWorld(t).java
	name := unique("client")
	java.Call(t, "connect", name, "compress=all")
	t.Cleanup(func() { java.Call(t, "disconnect", name) })
	compressing := agentSession{java, name, nil}
	for _, l := range []language{golang, javaLang} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			plain := l.open(t, options{})
			t.Run("ids", func(t *testing.T) { t.Parallel(); compressedIDs(t, compressing, plain) })
			t.Run("wait", func(t *testing.T) { t.Parallel(); compressedWait(t, compressing, plain) })
		})
	}
	t.Run("revocation", func(t *testing.T) { t.Parallel(); compressedRevocation(t, compressing) })
}

// Other clients see gzip bytes as its id. They wait for it as for any contender.
func compressedIDs(t *testing.T, compressing agentSession, plain session) {
	t.Helper()
	path := testkit.Path(t)
	holder := compressing.contender(t, path, "an id")
	lister, err := mutex.New(connect(t, options{}), path)
	require.NoError(t, err)
	chain(t, path, []contender{holder, plain.contender(t, path, "")}, func([]string) {
		queue := participants(t, lister, 2)
		require.NotEqual(t, "an id", queue[0].ID)
		unzip, err := gzip.NewReader(bytes.NewReader([]byte(queue[0].ID)))
		require.NoError(t, err)
		id, err := io.ReadAll(unzip)
		require.NoError(t, err)
		require.Equal(t, "an id", string(id))
	})
}

// It fails when it has to wait for a contender whose data is not compressed, because it reads that data. It leaves nothing
// behind.
func compressedWait(t *testing.T, compressing agentSession, plain session) {
	t.Helper()
	path := testkit.Path(t)
	holder := plain.contender(t, path, "holder")
	start(holder).granted(t, "plain")
	waiter := compressing.contender(t, path, "waiter")
	require.ErrorContains(t, waiter.lock(), "Not in GZip format")
	require.Len(t, queue(t, path), 1)
	require.NoError(t, holder.unlock())
	require.NoError(t, waiter.lock())
	require.NoError(t, waiter.unlock())
}

// Its requests to release are not understood, nor does it understand others'.
func compressedRevocation(t *testing.T, compressing agentSession) {
	t.Helper()
	path := testkit.Path(t)
	client := connect(t, options{})
	m, err := mutex.New(client, path)
	require.NoError(t, err)
	lease, err := m.Acquire(testkit.Context(t))
	require.NoError(t, err)
	compressing.process.Call(t, "revoke", compressing.client, lease.Path())
	reread(t, lease.Path())
	_, _, err = client.Conn().Get(lease.Path()) // answered after the reads of the lease
	require.NoError(t, err)
	select {
	case <-lease.Revoked():
		require.Fail(t, "the limit is gone: say so in docs/interop.md")
	default:
	}
	plain := openJava(t, options{}).(agentSession)
	plain.process.Call(t, "revoke", plain.client, lease.Path())
	testkit.Receive(t, lease.Revoked(), "a request that is not compressed")
	require.NoError(t, lease.Release())

	theirs := compressing.contender(t, path, "id").(*agentContender)
	theirs.process.Call(t, "revocable", theirs.name)
	require.NoError(t, theirs.lock())
	node := queued(t, path, 1)[0]
	require.NoError(t, revoke.New(client).AttemptRevoke(testkit.Context(t), node))
	reread(t, node)
	require.Equal(t, "false", theirs.process.Do(t, "revoked", theirs.name, "200"))
	compressing.process.Call(t, "revoke", compressing.client, node)
	require.Equal(t, "true", theirs.process.Do(t, "revoked", theirs.name, "30000"))
	require.NoError(t, theirs.unlock())
}

// reread waits until the holder watches its znode again, after its earlier watch was used up.
func reread(t *testing.T, node string) {
	t.Helper()
	testkit.Eventually(t, func() bool { return watchers(t, node) == 1 }, "the holder reads its znode again")
}
