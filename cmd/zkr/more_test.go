//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// waitScript is a command that reports its start, and ends on request.
const waitScript = "echo $$ > ready-$0; while [ ! -e go ]; do sleep 0.02; done; exit 3"

// Two read at the same time; a writer waits for both, and a plain lock is refused.
func TestSharedAndWrite(t *testing.T) {
	w := newWorld(t)
	one := w.start("lock", "--shared", "/l", "--", "sh", "-c", waitScript, "1")
	two := w.start("lock", "--shared", "/l", "--", "sh", "-c", waitScript, "2")
	w.content("ready-1")
	w.content("ready-2")
	require.Equal(t, 75, w.run("lock", "--write", "-n", "/l", "--", "true").code)
	require.Equal(t, 64, w.run("lock", "/l", "--", "true").code)
	require.Equal(t, 64, w.run("lock", "--permits", "2", "/l", "--", "true").code)
	writer := w.start("lock", "--write", "/l", "--", "sh", "-c", "echo > written")
	w.awaitContenders("/l", 3)
	require.Equal(t, 75, w.run("lock", "--shared", "-n", "/l", "--", "true").code, "behind a writer")
	require.NoFileExists(t, w.file("written"))
	var queues []struct {
		Kind       string
		Contenders []struct{ Holds bool }
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-o", "json", "/l").stdout), &queues))
	require.Equal(t, "rwlock", queues[0].Kind)
	require.Equal(t, []struct{ Holds bool }{{true}, {true}, {false}}, queues[0].Contenders)
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	require.Equal(t, []int{3, 3, 0}, []int{one.code(), two.code(), writer.code()})
	require.Empty(t, w.server.Children("/l"))
}

// As many commands run as there are permits. The others wait, and a holder can be asked to release.
func TestPermits(t *testing.T) {
	w := newWorld(t)
	one := w.start("lock", "--permits", "2", "--id", "one", "/l", "--", "sh", "-c", "echo > ready-1; exec sleep 100")
	w.content("ready-1")
	two := w.start("lock", "--permits", "2", "--id", "two", "/l", "--", "sh", "-c", waitScript, "2")
	w.content("ready-2")
	got := w.run("lock", "--permits", "2", "-n", "/l", "--", "true")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, `held by "one"`)
	require.Contains(t, got.stderr, `and by "two"`)
	require.Equal(t, 64, w.run("lock", "/l", "--", "true").code)
	three := w.start("lock", "--permits", "2", "--id", "three", "/l", "--", "sh", "-c", "echo > ready-3")
	holds := func() map[string]bool {
		var queues []struct {
			Kind       string
			Contenders []struct {
				ID    string
				Path  string
				Holds bool
			}
		}
		require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-r", "-o", "json", "/").stdout), &queues))
		require.Len(t, queues, 1)
		require.Equal(t, "semaphore", queues[0].Kind)
		found := map[string]bool{}
		for _, c := range queues[0].Contenders {
			_, isTwice := found[c.ID]
			require.False(t, isTwice, "each is there once")
			found[c.ID] = c.Holds
		}
		return found
	}
	w.eventually(func() bool { return len(holds()) == 3 }, "the third waits")
	require.Equal(t, map[string]bool{"one": true, "two": true, "three": false}, holds())
	require.NoFileExists(t, w.file("ready-3"))
	require.Equal(t, 0, w.run("revoke", "/l").code)
	require.Equal(t, 128+int(syscall.SIGTERM), one.code())
	require.Equal(t, 0, three.code())
	two.await()
	require.Equal(t, 128+int(syscall.SIGTERM), two.code())
}

// Both readers are asked, the writer who waits is not.
func TestRevokeReaders(t *testing.T) {
	w := newWorld(t)
	one := w.start("lock", "--shared", "--id", "one", "/l", "--", "sh", "-c", "echo > ready-1; exec sleep 100")
	two := w.start("lock", "--shared", "--id", "two", "/l", "--", "sh", "-c", "echo > ready-2; exec sleep 100")
	w.content("ready-1")
	w.content("ready-2")
	writer := w.start("lock", "--write", "--id", "three", "/l", "--", "echo", "written")
	w.awaitContenders("/l", 3)
	got := w.run("revoke", "/l")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, `"one"`)
	require.Contains(t, got.stdout, `"two"`)
	require.NotContains(t, got.stdout, `"three"`)
	require.Equal(t, []int{128 + 15, 128 + 15, 0}, []int{one.code(), two.code(), writer.code()})
	require.Equal(t, "written\n", writer.stdout.String())
}

// One permit of a semaphore is asked back, another is taken away, by their znodes.
func TestZnodesOfPermits(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=team")
	start := func(id string) (*run, string) {
		r := w.start("lock", "--permits", "2", "--grace", "200ms", "--id", id, "/s", "--", "sh", "-c", "echo $ZKR_LOCK_ZNODE > znode-"+id+"; exec sleep 100")
		return r, w.content("znode-" + id)
	}
	asked, askedZnode := start("asked")
	kicked, kickedZnode := start("kicked")
	got := w.run("revoke", askedZnode)
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, `"asked" at `+askedZnode)
	require.Equal(t, 128+int(syscall.SIGTERM), asked.code())
	require.Equal(t, 0, w.run("kick", "--yes", kickedZnode).code)
	require.Equal(t, 74, kicked.code())
}
