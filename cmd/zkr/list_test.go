package main_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func nothing(context.Context, *recipes.Lease) error { return nil }

// wait makes a contender wait until the test ends, and returns its znode.
func (w *world) wait(client *recipes.Client, full, path, id string) string {
	w.Helper()
	before := w.server.Children(full)
	lock, err := mutex.New(client, path, mutex.WithID(id))
	require.NoError(w, err)
	ended := make(chan struct{})
	go func() { // ends with the client, which the test closes
		defer close(ended)
		if lease, err := lock.Acquire(w.Context()); err == nil {
			_ = lease.Release()
		}
	}()
	w.Cleanup(func() { <-ended })
	for _, znode := range w.awaitContenders(full, len(before)+1) {
		if !strings.Contains(strings.Join(before, " "), znode[len(full)+1:]) {
			return znode
		}
	}
	require.FailNow(w, "no new znode")
	return ""
}

func TestListAsJSON(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=team")
	client := w.client(recipes.WithNamespace("team"))
	lease := w.holdWith(client, "/locks/a", "ann")
	waiter := w.wait(client, "/team/locks/a", "/locks/a", "bob <b@c>")
	w.server.Put(lease.Path(), []byte("__REVOKE__"))
	got := w.run("ls", "-o", "json", "/locks/a")
	require.Equal(t, 0, got.code)
	require.Empty(t, got.stderr)
	var queues []map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &queues))
	require.Len(t, queues, 1)
	require.Equal(t, "/locks/a", queues[0]["path"])
	require.Equal(t, "mutex", queues[0]["kind"])
	contenders := queues[0]["contenders"].([]any)
	require.Len(t, contenders, 2)
	first, second := contenders[0].(map[string]any), contenders[1].(map[string]any)
	since, err := time.Parse(time.RFC3339, first["since"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), since, time.Minute)
	delete(first, "since")
	delete(second, "since")
	token := float64(lease.FencingToken())
	require.Equal(t, map[string]any{"position": 1.0, "id": "", "path": strings.TrimPrefix(lease.Path(), "/team"), "token": token, "holds": true, "revoked": true}, first)
	_, stat, _ := w.server.Get(waiter)
	require.Equal(t, map[string]any{
		"position": 2.0, "id": "bob <b@c>", "path": strings.TrimPrefix(waiter, "/team"), "token": float64(stat.Czxid), "holds": false, "revoked": false,
	}, second)
}

func TestListRecursively(t *testing.T) {
	w := newWorld(t)
	w.hold("/locks/a", "ann")
	session := w.server.OpenSession(time.Hour)
	w.server.Seed(zktest.Znode{Path: "/locks/deep/b/_c_x-latch-0000000001", Session: session, Data: []byte("bob")})
	w.server.Seed(zktest.Znode{Path: "/locks/s/leases/_c_x-lease-0000000001", Session: session, Data: []byte("cid")})
	var queues []struct {
		Path, Kind string
		Contenders []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-r", "-o", "json", "/locks").stdout), &queues))
	require.Len(t, queues, 3)
	kinds := map[string]string{}
	for _, q := range queues {
		require.Len(t, q.Contenders, 1)
		kinds[q.Path] = q.Kind + " " + q.Contenders[0].ID
	}
	require.Equal(t, map[string]string{"/locks/a": "mutex ann", "/locks/deep/b": "latch bob", "/locks/s": "semaphore cid"}, kinds)
}

func TestListOfNothing(t *testing.T) {
	w := newWorld(t)
	got := w.run("ls", "/missing")
	require.Equal(t, 1, got.code)
	require.Empty(t, got.stdout)
	require.Contains(t, got.stderr, "/missing")
	require.Equal(t, 1, w.run("ls", "-r", "-o", "json", "/missing").code)
	w.server.Put("/idle", nil)
	require.Equal(t, "[]\n", w.run("ls", "-r", "-o", "json", "/idle").stdout)
	require.JSONEq(t, `[{"path":"/idle","kind":"unknown","contenders":[]}]`, w.run("ls", "-o", "json", "/idle").stdout)
	require.Contains(t, w.run("ls", "/idle").stdout, "free")
}

func TestListAsTable(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/a", "night shift")
	got := w.run("ls", "/a")
	require.Equal(t, 0, got.code)
	lines := strings.Split(got.stdout, "\n")
	require.Equal(t, []string{"PATH", "KIND", "POS", "STATE", "ID", "SINCE", "TOKEN", "ZNODE"}, strings.Fields(lines[0]))
	require.Regexp(t, `^/a +mutex +1 +holds +"night shift" +\S+T\S+ +`+itoa(lease.FencingToken())+` +/a/_c_\S+$`, lines[1])
}

func TestRevokeSaysWhomBeforeItAsks(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "ann")
	got := w.run("revoke", "/l")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, `"ann" at `+lease.Path())
	select {
	case <-lease.Revoked():
	case <-time.After(patience):
		require.Fail(t, "not revoked")
	}
	require.NoError(t, lease.Release())
	require.Equal(t, 1, w.run("revoke", "/l").code)
	require.Equal(t, 1, w.run("revoke", "/missing").code)
}

func TestRevokeAWaiter(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=team")
	client := w.client(recipes.WithNamespace("team"))
	lease := w.holdWith(client, "/l", "ann")
	waiter := w.wait(client, "/team/l", "/l", "bob")
	got := w.run("revoke", strings.TrimPrefix(waiter, "/team"))
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, `"bob" at `+strings.TrimPrefix(waiter, "/team"))
	data, _, _ := w.server.Get(waiter)
	require.Equal(t, "__REVOKE__", string(data))
	data, _, _ = w.server.Get(lease.Path())
	require.Equal(t, "ann", string(data))
	w.server.Delete(waiter)
	require.Equal(t, 1, w.run("revoke", "/l/_c_gone-lock-0000000099").code)
}

func TestRevokeWaits(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", "trap 'exit 8' TERM; echo > ready; while :; do sleep 0.02; done")
	w.content("ready")
	require.Equal(t, 0, w.run("revoke", "--wait", "20s", "/l").code)
	require.Empty(t, w.server.Children("/l"))
	require.Equal(t, 8, r.code())
	require.Contains(t, r.stderr.String(), "asked to release")

	w.hold("/deaf", "deaf")
	got := w.run("revoke", "--wait", "300ms", "/deaf")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, "not released within 300ms")
}

// A command that does not react to a revocation is killed after the grace.
func TestRevokedCommandThatIgnoresIt(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "--grace", "200ms", "/l", "--", "sh", "-c", "trap '' TERM; echo > ready; while :; do sleep 0.02; done")
	w.content("ready")
	require.Equal(t, 0, w.run("revoke", "/l").code)
	require.Equal(t, 128+9, r.code())
}

func TestKick(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "ann")
	require.Equal(t, 64, w.run("kick", lease.Path()).code, "without --yes")
	require.Len(t, w.server.Children("/l"), 1)
	got := w.run("kick", "--yes", lease.Path())
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, `"ann"`)
	require.Empty(t, w.server.Children("/l"))
	require.Equal(t, 1, w.run("kick", "--yes", lease.Path()).code)
	w.server.Put("/l/config", nil)
	require.Equal(t, 64, w.run("kick", "--yes", "/l/config").code)
	_, _, isThere := w.server.Get("/l/config")
	require.True(t, isThere)
}

func TestVersion(t *testing.T) {
	w := newWorld(t)
	got := w.run("version")
	require.Equal(t, 0, got.code)
	require.Regexp(t, `^zkr \S+.* go1\.\S+ linux/\S+\n$`, got.stdout)
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := w.run("completion", shell)
		require.Equal(t, 0, got.code)
		require.Contains(t, got.stdout, "zkr")
	}
	require.NoError(t, os.WriteFile(w.file("c"), []byte(w.run("completion", "bash").stdout), 0o600))
}
