package interop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// javaMember is a lock of a Java client of its own.
type javaMember struct {
	agentSession

	name string
}

func newJavaMember(t *testing.T, kind, path string, args ...string) javaMember {
	t.Helper()
	session := openJava(t, options{}).(agentSession)
	name := unique(kind)
	session.process.Call(t, append([]string{kind, name, session.client, path}, args...)...)
	return javaMember{session, name}
}

func (m javaMember) do(t *testing.T, command string, args ...string) []string {
	t.Helper()
	return m.process.Call(t, append([]string{command, m.name}, args...)...)
}

// starts sends a command whose answer takes its time.
func (m javaMember) starts(command string, args ...string) <-chan struct{} {
	return m.process.Go(append([]string{command, m.name}, args...)...).Done()
}

// acquiring starts an acquisition, which the test has to see the end of.
func acquiring[L any](t *testing.T, acquire func(context.Context) (L, error)) <-chan L {
	t.Helper()
	granted := make(chan L, 1)
	go func() { // ends with the wait
		lease, err := acquire(testkit.Context(t))
		if err == nil {
			granted <- lease
		}
		close(granted)
	}()
	return granted
}

func goLock(t *testing.T, path string) *rwlock.InterProcessReadWriteLock {
	t.Helper()
	l, err := rwlock.New(connect(t, options{}), path)
	require.NoError(t, err)
	return l
}

func acquired(t *testing.T, acquire func(context.Context) (*recipes.Lease, error)) *recipes.Lease {
	t.Helper()
	lease, err := acquire(testkit.Context(t))
	require.NoError(t, err)
	return lease
}

// Readers of both languages share, writers of both are alone, and each sees the contenders of the other.
func TestReadWriteLock(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	own, java := goLock(t, path), newJavaMember(t, "rwlock", path)
	refused := func(acquire func(context.Context) (*recipes.Lease, error)) {
		t.Helper()
		_, err := acquire(testkit.Context(t))
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
	}

	reader := acquired(t, own.ReadLock().Acquire)
	java.do(t, "read")
	require.Equal(t, []string{"false"}, newJavaMember(t, "rwlock", path).do(t, "trywrite", "0"))
	refused(goLock(t, path).WriteLock().TryAcquire)
	nodes := java.do(t, "readers")
	require.Contains(t, nodes, reader.Path())
	participants(t, own.ReadLock(), 2)

	javaWriter := newJavaMember(t, "rwlock", path) // waits for both readers
	writing := javaWriter.starts("write")
	queued(t, path, 3)
	require.NoError(t, reader.Release())
	refused(own.ReadLock().TryAcquire) // which does not overtake the writer
	java.do(t, "unread")
	testkit.Receive(t, writing, "Java writes")

	late := acquiring(t, own.ReadLock().Acquire) // our reader and writer wait for Java's writer
	queued(t, path, 2)
	last := acquiring(t, goLock(t, path).WriteLock().Acquire)
	queued(t, path, 3)
	require.Empty(t, late)
	javaWriter.do(t, "unwrite")
	reader = testkit.Receive(t, late, "our reader")
	require.NotNil(t, reader)
	require.Empty(t, last)
	require.NoError(t, reader.Release())
	writer := testkit.Receive(t, last, "our writer")
	require.NotNil(t, writer)

	require.Equal(t, []string{"false"}, java.do(t, "tryread", "0"))
	reading := java.starts("read")
	queued(t, path, 2)
	require.NoError(t, writer.Release())
	testkit.Receive(t, reading, "Java reads")
	java.do(t, "unread")
	require.Empty(t, queue(t, path))
}

// Our downgrade keeps out a Java writer that queued before.
func TestDowngradeBesideJavasWriter(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	own, java := goLock(t, path), newJavaMember(t, "rwlock", path)
	writer := acquired(t, own.WriteLock().Acquire)
	writing := java.starts("write")
	queued(t, path, 2)
	reader, err := own.ReadLock().Acquire(writer.Context())
	require.NoError(t, err)
	require.NoError(t, writer.Release())
	shared := goLock(t, path)
	_, err = shared.ReadLock().TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired, "it is behind Java's writer")
	// Java reads the queue again after the end of the writer, and then watches our reader.
	testkit.Eventually(t, func() bool { return watchers(t, reader.Path()) == 2 }, "Java waits for our reader")
	select {
	case <-writing:
		require.Fail(t, "Java writes beside our reader")
	default:
	}
	require.NoError(t, reader.Context().Err())
	require.NoError(t, reader.Release())
	testkit.Receive(t, writing, "Java writes")
	java.do(t, "unwrite")
}

// Curator 5.4 gives the read lock under the write lock its own number. Our writer that queued before gets in when the write
// lock is released, and is alone among those with lower numbers. From 5.5 on it stays out.
func TestDowngradeOfCurator(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	java := newJavaMember(t, "rwlock", path)
	java.do(t, "write")
	writing := acquiring(t, goLock(t, path).WriteLock().Acquire)
	queued(t, path, 2)
	java.do(t, "read")
	reader := java.do(t, "readers")[0]
	version, err := curator.Version(t.Context())
	require.NoError(t, err)
	t.Logf("Curator %s", version)
	if !strings.HasPrefix(version, "5.4.") {
		require.True(t, strings.HasSuffix(reader, "-__READ__0000000000"), reader)
		java.do(t, "unwrite")
		testkit.Eventually(t, func() bool { return watchers(t, reader) == 1 }, "our writer waits for Java's reader")
		require.Empty(t, writing)
		java.do(t, "unread")
		writer := testkit.Receive(t, writing, "our writer")
		require.NotNil(t, writer)
		require.NoError(t, writer.Release())
		return
	}
	require.True(t, strings.HasSuffix(reader, "-__READ__0000000002"), reader)
	java.do(t, "unwrite")
	writer := testkit.Receive(t, writing, "our writer")
	require.NotNil(t, writer)
	nodes := queue(t, path)
	require.Equal(t, []string{writer.Path(), reader}, nodes, "Java's reader thinks that it holds the lock, too")
	java.do(t, "unread")
	require.NoError(t, writer.Release())
}
