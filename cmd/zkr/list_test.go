package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
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

// TestFreeLockIsFree whether or not the server has removed its container.
func TestFreeLockIsFree(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/idle", nil)
	for _, path := range []string{"/idle", "/missing"} {
		for _, flags := range [][]string{{}, {"-r"}, {"--summary"}} {
			require.Equal(t, result{0, "[]\n", ""}, w.run(append([]string{"ls", "-o", "json", path}, flags...)...))
		}
		require.Equal(t, result{0, path + " is free\n", ""}, w.run("ls", path))
		require.Equal(t, result{0, "no locks below " + path + "\n", ""}, w.run("ls", "-r", path))
	}
}

func TestListAsTable(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/a", "night shift")
	got := w.run("ls", "/a")
	require.Equal(t, 0, got.code)
	lines := strings.Split(got.stdout, "\n")
	require.Equal(t, []string{"PATH", "KIND", "POS", "STATE", "AGE", "ID", "TOKEN"}, strings.Fields(lines[0]))
	require.Regexp(t, `^/a +mutex +1 +holds +\d+s +"night shift" +`+itoa(lease.FencingToken())+`$`, lines[1])
	require.Less(t, len(lines[1]), 80)
}

// TestDirectoryOfLocks says that the locks are below.
func TestDirectoryOfLocks(t *testing.T) {
	w := newWorld(t)
	for i := range 8 {
		w.seedHolder("/locks/"+itoa(int64(i)), "ann")
	}
	require.Equal(t, result{0, "/locks: no lock here, 8 below: use -r\n", ""}, w.run("ls", "/locks"))
	require.Equal(t, "[]\n", w.run("ls", "-o", "json", "/locks").stdout)
}

// TestProtectedSubtreeHidesNothingElse: the others are listed, and stderr says what is missing.
func TestProtectedSubtreeHidesNothingElse(t *testing.T) {
	w := newWorld(t)
	protect(w, "/secret")
	w.seedHolder("/locks/a", "ann")
	got := w.run("ls", "-r", "/")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, "/locks/a")
	require.Contains(t, got.stderr, "/secret")
	require.Equal(t, 69, w.run("ls", "-r", "/secret").code)
	require.Contains(t, w.run("top", "--once", "/").stdout, "/locks/a")
}

func TestSummary(t *testing.T) {
	w := newWorld(t)
	session := w.server.OpenSession(time.Hour)
	for _, lock := range []string{"/locks/9", "/locks/10"} {
		w.seedHolder(lock, "night shift")
	}
	for i := range 300 {
		w.server.Seed(zktest.Znode{Path: "/locks/busy/a-lock-" + fmt.Sprintf("%010d", i), Session: session, Data: []byte("bob")})
	}
	lines := strings.Split(w.run("ls", "-r", "--summary", "/locks").stdout, "\n")
	require.Equal(t, []string{"WAITING", "LONGEST", "HELD", "KIND", "HOLDER", "PATH"}, strings.Fields(lines[0]))
	require.Regexp(t, `^299 +\d+s +\d+s +mutex +"bob" +/locks/busy$`, lines[1])
	require.Regexp(t, `^0 +- +\d+s +mutex +"night shift" +/locks/9$`, lines[2])
	require.Regexp(t, `/locks/10$`, lines[3], "numbers count as numbers")
	require.Len(t, lines, 5)
	var rows []struct {
		Path    string
		Holders []struct{ ID string }
		Waiting int
		Longest *float64 `json:"longest_seconds"`
	}
	for _, args := range [][]string{{"ls", "-r", "--summary", "-o", "json", "/locks"}, {"top", "--once", "-o", "json", "/locks"}} {
		require.NoError(t, json.Unmarshal([]byte(w.run(args...).stdout), &rows))
		require.Equal(t, "/locks/busy", rows[0].Path)
		require.Equal(t, 299, rows[0].Waiting)
		require.Equal(t, "bob", rows[0].Holders[0].ID)
		require.NotNil(t, rows[0].Longest)
	}
}

// TestListOnATerminal does not wrap, and has colours unless NO_COLOR forbids them.
func TestListOnATerminal(t *testing.T) {
	w := newTerminal(newWorld(t))
	w.hold("/a", strings.Repeat("long", 30))
	require.NoError(t, pty.Setsize(w.slave, &pty.Winsize{Rows: 24, Cols: 80}))
	shown := func(env string) []string {
		before := len(w.screen.String())
		r := w.startWith(func(c *exec.Cmd) {
			w.attach(c)
			c.Env = append(c.Env, "TERM=vt100", env)
		}, "ls", "/a")
		require.Equal(t, 0, r.code())
		w.eventually(func() bool { return strings.Count(w.screen.String()[before:], "\n") == 2 }, "two lines")
		return strings.Split(w.screen.String()[before:], "\r\n")
	}
	colored, bare := shown("NO_COLOR="), shown("NO_COLOR=1")
	require.True(t, strings.HasPrefix(colored[0], "\x1b[1mPATH"), colored[0])
	require.True(t, strings.HasPrefix(bare[0], "PATH"), bare[0])
	require.LessOrEqual(t, len([]rune(bare[1])), 80)
}

// TestWho finds the client's address by its session, which it never shows.
func TestWho(t *testing.T) {
	w := newWorld(t)
	znode := w.seedHolder("/l", "")
	_, stat, _ := w.server.Get(znode)
	session := fmt.Sprintf("0x%x", stat.EphemeralOwner)
	front := newTalkative(w, srvr("3.9.4", "leader"), "")
	front.answer("cons", " /10.0.0.5:43210[1](queued=0,recved=7,sent=7,sid="+session+",lop=PING,est=1,to=30000)\n"+
		" /10.0.0.9:1[0](queued=0,recved=1,sent=0)\n\n")
	w.env = append(w.env, "ZKR_SERVERS="+front.Addr().String())
	for _, path := range []string{"/l", znode} {
		got := w.run("who", path)
		require.Equal(t, 0, got.code, got.stderr)
		require.Contains(t, got.stdout, "10.0.0.5:43210")
		require.Contains(t, got.stdout, znode)
		require.NotContains(t, got.stdout+got.stderr, session[2:])
	}
	require.Equal(t, 0, w.run("revoke", "/l").code)
	require.Contains(t, w.run("who", "/l").stdout, "10.0.0.5:43210", "also after a revocation")
	got := w.run("ls", "-o", "wide", "/l")
	require.Equal(t, []string{"PATH", "KIND", "POS", "STATE", "AGE", "ID", "TOKEN", "CLIENT", "SINCE", "ZNODE"}, strings.Fields(strings.Split(got.stdout, "\n")[0]))
	require.Regexp(t, `10\.0\.0\.5:43210 +\S+T\S+ +`+znode, got.stdout)
	require.Equal(t, 1, w.run("who", "/free").code)
}

// TestWhoByTheAdminServer is for servers whose whitelist does not have cons, as by default.
func TestWhoByTheAdminServer(t *testing.T) {
	w := newWorld(t)
	znode := w.seedHolder("/l", "ann")
	_, stat, _ := w.server.Get(znode)
	front := newTalkative(w, srvr("3.9.4", "leader"), "")
	front.answer("cons", "cons is not executed because it is not in the whitelist.\n")
	w.env = append(w.env, "ZKR_SERVERS="+front.Addr().String())
	admin := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/commands/connections" {
			http.NotFound(out, r)
			return
		}
		_, _ = fmt.Fprintf(out, `{"connections":[{"remote_socket_address":"10.0.0.6:43211","session_id":%d}],"secure_connections":[],"command":"connections","error":null}`, stat.EphemeralOwner)
	}))
	t.Cleanup(admin.Close)
	_, port, err := net.SplitHostPort(admin.Listener.Addr().String())
	require.NoError(t, err)
	got := w.run("who", "--admin-port", port, "/l")
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, "10.0.0.6:43211")
	admin.Close()
	got = w.run("who", "--admin-port", port, "/l")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, "add cons to its 4lw.commands.whitelist")
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

// A leftover that nobody's session ends is shown as such, and kick removes it.
func TestListShowsWhatIsNotEphemeral(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/l/lock-0000000000", []byte("by hand"))
	w.wait(w.client(), "/l", "/l", "ann")
	got := w.run("ls", "/l")
	require.Equal(t, 0, got.code)
	require.Regexp(t, `(?m)^/l +mutex +1 +holds,not-ephemeral +\S+ +"by hand" `, got.stdout)
	require.Regexp(t, `(?m)^/l +mutex +2 +waits +\S+ +ann `, got.stdout)
	require.Contains(t, w.run("ls", "-o", "json", "/l").stdout, `"not_ephemeral": true`)
	got = w.run("lock", "-w", "100ms", "/l", "--", "true")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, "not ephemeral")
	got = w.run("kick", "--yes", "/l/lock-0000000000")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, "not ephemeral")
}

// A name that ends as that of a contender is not that contender's.
func TestKickNeedsTheWholeName(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "ann")
	name := strings.TrimPrefix(lease.Path(), "/l/")
	for _, part := range []string{"lock-0000000000", name[len(name)-len("0-lock-0000000000"):], strings.TrimPrefix(name, "_c_")} {
		for _, command := range [][]string{{"kick", "--yes"}, {"revoke"}} {
			got := w.run(append(command, "/l/"+part)...)
			require.Equal(t, 1, got.code, "%v %s: %s", command, part, got.stderr)
			require.Contains(t, got.stderr, "is gone")
		}
	}
	require.Equal(t, []string{name}, w.server.Children("/l"))
	require.NoError(t, lease.Context().Err())
	data, _, _ := w.server.Get(lease.Path())
	require.Equal(t, "ann", string(data))
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

// TestNamesOfOthersAreShownAsText: other programs choose the names of znodes. A mark for right-to-left text would reorder a line on the
// terminal, and a space would forge fields.
func TestNamesOfOthersAreShownAsText(t *testing.T) {
	w := newWorld(t)
	const lock, znode = "/locks/a\u202eb c", "/locks/a\u202eb c/x\u202e-lock-0000000001"
	session := w.server.OpenSession(time.Hour)
	w.server.Seed(zktest.Znode{Path: znode, Session: session, Data: []byte("ann\u202e")})
	w.server.Seed(zktest.Znode{Path: lock + "/lock-0000000002", Session: session, Data: []byte("bob\x9b2J")}) // a command to a terminal with eight bits
	listening := w.start("elect", "-l", lock)
	w.eventually(func() bool { return strings.Contains(listening.stdout.String(), "lock-0000000001") }, "the leader")
	listening.signal(syscall.SIGINT)
	require.Equal(t, 130, listening.code())
	text := listening.stdout.String()
	for _, args := range [][]string{
		{"ls", lock},
		{"ls", "-o", "wide", lock},
		{"ls", "--summary", lock},
		{"top", "--once", "/locks"},
		{"who", lock},
		{"revoke", lock},
		{"kick", "--yes", znode},
	} {
		got := w.run(args...)
		require.Contains(t, got.stdout+got.stderr, `\u202e`, args)
		text += got.stdout + got.stderr
		if args[0] == "ls" || args[0] == "top" {
			require.Contains(t, got.stdout, `"/locks/a\u202eb c"`, args)
		}
	}
	require.NotContains(t, text, "\u202e")
	require.NotContains(t, text, "\x9b")
	require.Len(t, w.server.Children(lock), 1)
}
