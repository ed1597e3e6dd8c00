//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
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

// TestFreeLockIsFree has cases with and without the lock's container.
func TestFreeLockIsFree(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/idle", nil)
	for _, path := range []string{"/idle", "/missing"} {
		for _, flags := range [][]string{{}, {"-r"}, {"--summary"}} {
			require.Equal(t, result{0, "[]\n", ""}, w.run(append([]string{"ls", "-o", "json", path}, flags...)...))
		}
	}
	require.Equal(t, result{0, "/idle is free\n", ""}, w.run("ls", "/idle"))
	require.Equal(t, result{0, "no locks below /idle\n", ""}, w.run("ls", "-r", "/idle"))
	for _, flag := range []string{"-r", "--summary", "-o=wide"} {
		require.Equal(t, result{0, "/missing: no such path (a free lock may have none)\n", ""}, w.run("ls", flag, "/missing"))
	}
}

// The path of a Once also has the latest occurrence: while it runs, and later without a holder.
func TestListOfOnce(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	runs, err := once.New(client, "/jobs/report", once.WithID("web-1"))
	require.NoError(t, err)
	require.NoError(t, runs.Do(t.Context(), "build-9", func(_ context.Context, lease *recipes.Lease) error {
		lines := strings.Split(w.run("ls", "/jobs/report").stdout, "\n")
		require.Len(t, lines, 4)
		require.Regexp(t, `^/jobs/report +once +1 +holds +\d+s +web-1 +`+itoa(lease.FencingToken())+`$`, lines[1])
		require.Regexp(t, `^latest run: build-9 by web-1: started at \S+Z, not known to have finished$`, lines[2])
		return nil
	}))
	require.ErrorContains(t, runs.Do(t.Context(), "build-10", func(context.Context, *recipes.Lease) error { return errors.New("disk full") }), "disk full")
	require.Regexp(t, `^/jobs/report is free; latest run: build-10 by web-1: failed at \S+Z: disk full\n$`, w.run("ls", "/jobs/report").stdout)

	var shown []struct {
		Kind       string
		Contenders []any
		Last       map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-o", "json", "/jobs/report").stdout), &shown))
	require.Len(t, shown, 1)
	require.Equal(t, "once", shown[0].Kind)
	require.Empty(t, shown[0].Contenders)
	last, err := runs.Last(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"occurrence": "build-10", "id": "web-1", "token": float64(last.Token), "finished": false, "runs": 1.0, "failure": "disk full",
		"started_at": last.StartedAt.Format(time.RFC3339Nano), "finished_at": last.FinishedAt.Format(time.RFC3339Nano),
	}, shown[0].Last)
}

// Only a record makes a path that of a Once. One that can't be read is reported, and the holder is shown.
func TestListBesideOtherDataOfTheName(t *testing.T) {
	w := newWorld(t)
	w.seedHolder("/a", "ann")
	w.server.Put("/a/last", []byte("text of another program"))
	require.Regexp(t, `\n/a +mutex +1 +holds .*\n$`, w.run("ls", "/a").stdout)
	w.seedHolder("/b", "ann")
	w.server.Seed(zktest.Znode{Path: "/b/last", ACL: []zk.ACL{{Perms: zk.PermWrite, Scheme: "world", ID: "anyone"}}})
	got := w.run("ls", "/b")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, "no permission to read /b/last")
	require.Regexp(t, `\n/b +mutex +1 +holds .*\n$`, got.stdout)
}

// The members of a group are those of the group package. Znodes without a session are none.
func TestListOfGroup(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=team")
	client := w.client(recipes.WithNamespace("team"))
	for _, id := range []string{"web-2", "web 1"} {
		member, err := group.New(client, "/web", group.WithID(id))
		require.NoError(t, err)
		require.NoError(t, member.Join([]byte("data")))
		require.NoError(t, member.Await(t.Context()))
	}
	w.server.Put("/team/web/config", nil)
	_, stat, isThere := w.server.Get("/team/web/web-2")
	require.True(t, isThere)
	lines := strings.Split(w.run("ls", "/web").stdout, "\n")
	require.Len(t, lines, 4)
	require.Regexp(t, `^/web +group +1 +member +\d+s +"web 1" +\d+$`, lines[1])
	require.Regexp(t, `^/web +group +2 +member +\d+s +web-2 +`+itoa(stat.Czxid)+`$`, lines[2])

	var shown []struct {
		Kind       string
		Contenders []struct{ ID, Path string }
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-o", "json", "/web").stdout), &shown))
	require.Len(t, shown, 1)
	require.Equal(t, "group", shown[0].Kind)
	require.Equal(t, []struct{ ID, Path string }{{"web 1", "/web/web 1"}, {"web-2", "/web/web-2"}}, shown[0].Contenders)
}

// A directory of many locks is not searched for members.
func TestListOfManyLocksReadsFewZnodes(t *testing.T) {
	w := newWorld(t)
	for i := range 300 {
		w.server.Put("/locks/"+itoa(int64(i)), nil)
	}
	requests := w.server.Observe()
	defer requests.Stop()
	require.Equal(t, result{0, "/locks is free\n", ""}, w.run("ls", "/locks"))
	require.Equal(t, 101, requests.Count(zktest.OpExists), "a hundred children, and the path")
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

// TestProtectedSubtreeHidesNothingElse requires that other locks are listed, and that stderr names the hidden
// subtree.
func TestProtectedSubtreeHidesNothingElse(t *testing.T) {
	w := newWorld(t)
	protect(w, "/secret")
	w.seedHolder("/locks/a", "ann")
	got := w.run("ls", "-r", "/")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, "/locks/a")
	require.Contains(t, got.stderr, "/secret")
	require.Equal(t, 69, w.run("ls", "-r", "/secret").code)
	got = w.run("top", "--once", "/")
	require.Contains(t, got.stdout, "/locks/a")
	require.Equal(t, 1, strings.Count(got.stdout+got.stderr, "/secret"))
}

// An unreadable path is named once, even if there is nothing else.
func TestRefusedPathIsNamedOnce(t *testing.T) {
	w := newWorld(t)
	protect(w, "/secret")
	for _, args := range [][]string{{"ls", "-r", "/"}, {"ls", "-r", "/secret"}, {"ls", "/secret"}, {"top", "--once", "/"}, {"top", "--once", "/secret"}} {
		got := w.run(args...)
		require.Equal(t, 69, got.code, args)
		require.Equal(t, 1, strings.Count(got.stdout+got.stderr, "/secret"), "%v\n%s%s", args, got.stdout, got.stderr)
	}
	r := w.start("top", "--every", "20ms", "/")
	requests := w.server.Observe()
	w.eventually(func() bool { return requests.Count(zktest.OpGetChildren, zktest.OpGetChildren2) > 20 }, "several looks")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
	require.Equal(t, 1, strings.Count(r.stdout.String()+r.stderr.String(), "/secret"))
}

// A path that does not exist is often a typo. The commands say so in words.
func TestPathsThatDoNotExist(t *testing.T) {
	w := newWorld(t)
	const znode = "/typo/_c_x-lock-0000000001"
	for _, args := range [][]string{{"who", "/typo"}, {"who", znode}, {"revoke", "/typo"}, {"revoke", znode}, {"kick", "--yes", znode}, {"top", "--once", "/typo"}} {
		require.Equal(t, result{1, "", "zkr: /typo: no such path (a free lock may have none)\n"}, w.run(args...), args)
	}
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

// TestWho finds the client's address by its session id, which the output never shows.
func TestWho(t *testing.T) {
	w := newWorld(t)
	znode := w.seedHolder("/l", "")
	_, stat, _ := w.server.Get(znode)
	session := fmt.Sprintf("0x%x", stat.EphemeralOwner)
	front := newTalkative(w, srvr("3.9.4", "leader"), "")
	front.answerCons(" /10.0.0.5:43210[1](queued=0,recved=7,sent=7,sid=" + session + ",lop=PING,est=1,to=30000)\n" +
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
	front.answerCons("cons is not executed because it is not in the whitelist.\n")
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

// A leftover without a session is shown as such, and kick removes it.
func TestListShowsPersistentZnodes(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/l/lock-0000000000", []byte("by hand"))
	w.wait(w.client(), "/l", "/l", "ann")
	got := w.run("ls", "/l")
	require.Equal(t, 0, got.code)
	require.Regexp(t, `(?m)^/l +mutex +1 +holds,not-ephemeral +\S+ +"by hand" `, got.stdout)
	require.Regexp(t, `(?m)^/l +mutex +2 +waits +\S+ +ann `, got.stdout)
	require.Contains(t, w.run("ls", "-o", "json", "/l").stdout, `"not_ephemeral": true`)
	got = w.run("lock", "-w", "1s", "/l", "--", "true")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, "not ephemeral")
	got = w.run("kick", "--yes", "/l/lock-0000000000")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, "not ephemeral")
}

// A znode whose name ends like a contender's is not that contender.
func TestKickNeedsTheWholeName(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "ann")
	name := strings.TrimPrefix(lease.Path(), "/l/")
	for _, part := range []string{"lock-0000000000", name[len(name)-len("0-lock-0000000000"):], strings.TrimPrefix(name, "_c_")} {
		for _, command := range [][]string{{"kick", "--yes"}, {"revoke"}} {
			got := w.run(append(command, "/l/"+part)...)
			require.Equal(t, 1, got.code, "%v %s: %s", command, part, got.stderr)
			require.Contains(t, got.stderr, "does not exist: it was deleted or never existed")
		}
	}
	require.Equal(t, []string{name}, w.server.Children("/l"))
	require.NoError(t, lease.Context().Err())
	data, _, _ := w.server.Get(lease.Path())
	require.Equal(t, "ann", string(data))
}

func TestVersion(t *testing.T) {
	w := newWorld(t)
	for _, argument := range []string{"version", "--version"} {
		got := w.run(argument)
		require.Equal(t, 0, got.code)
		require.Regexp(t, `^zkr `+regexp.QuoteMeta(releaseVersion)+`.* go1\.\S+ linux/\S+\n$`, got.stdout)
	}
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

// The data of a persistent znode is not overwritten, whatever its name, because no client would release it.
func TestRevokeLeavesPersistentZnodesAlone(t *testing.T) {
	w := newWorld(t)
	for path, dir := range map[string]string{"/l/lock-0000000000": "/l", "/s/leases/lease-0000000000": "/s"} {
		w.server.Put(path, []byte("precious=1"))
		for _, asked := range []string{path, dir} {
			got := w.run("revoke", asked)
			require.Equal(t, 1, got.code, "%s: %s", asked, got.stderr)
			require.Contains(t, got.stderr, "no client holds")
			require.Empty(t, got.stdout)
		}
		data, _, _ := w.server.Get(path)
		require.Equal(t, "precious=1", string(data))
	}
}

func TestKickOfAZnodeWithChildren(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/l/lock-0000000000/child", nil)
	got := w.run("kick", "--yes", "/l/lock-0000000000")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "not deleted, because it has children")
	require.Equal(t, []string{"child"}, w.server.Children("/l/lock-0000000000"))
}

// Servers, and programs that answer in their place, can't write escape sequences to the terminal, and neither can
// other clients.
func TestAnswersOfServersAreShownAsText(t *testing.T) {
	w := newWorld(t)
	const escape = "\x1b]0;owned\a"
	znode := w.seedHolder("/l", "ann")
	_, stat, _ := w.server.Get(znode)
	front := newTalkative(w, srvr("3.9.4"+escape, "leader"+escape), "")
	w.env = append(w.env, "ZKR_SERVERS="+front.Addr().String())
	admin := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(out, `{"connections":[{"remote_socket_address":"10.0.0.6\u001b[2J:43211","session_id":%d}]}`, stat.EphemeralOwner)
	}))
	t.Cleanup(admin.Close)
	_, port, err := net.SplitHostPort(admin.Listener.Addr().String())
	require.NoError(t, err)
	for _, cons := range []string{" /10.0.0.5" + escape + fmt.Sprintf(":1[1](sid=0x%x)\n", stat.EphemeralOwner), "not in the whitelist" + escape} {
		front.answerCons(cons)
		for _, args := range [][]string{{"doctor"}, {"who", "--admin-port", port, "/l"}, {"ls", "-o", "wide", "--admin-port", port, "/l"}} {
			got := w.run(args...)
			require.NotContains(t, got.stdout+got.stderr, "\x1b", args)
		}
	}
}

// An admin server's status line reaches stderr as text.
func TestAdminServerThatAnswersNoJSON(t *testing.T) {
	w := newWorld(t)
	w.seedHolder("/l", "ann")
	front := newTalkative(w, srvr("3.9.4", "leader"), "")
	front.answerCons("")
	admin, err := net.Listen("tcp", front.Addr().(*net.TCPAddr).IP.String()+":0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	go func() { // ends with the listener
		for {
			conn, err := admin.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte("HTTP/1.1 200 \x1b[2JOK\r\nContent-Length: 2\r\n\r\nno"))
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(admin.Addr().String())
	require.NoError(t, err)
	w.env = append(w.env, "ZKR_SERVERS="+front.Addr().String())
	got := w.run("who", "--admin-port", port, "/l")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, `200 \x1b[2JOK`)
	require.NotContains(t, got.stderr, "\x1b")
}

// TestLongIDsAreShortened uses data of a megabyte.
func TestLongIDsAreShortened(t *testing.T) {
	w := newWorld(t)
	w.seedHolder("/l", strings.Repeat("x", 900_000))
	for _, args := range [][]string{{"lock", "-n", "/l", "--", "true"}, {"lock", "-w", "100ms", "/l", "--", "true"}, {"revoke", "/l"}, {"ls", "--summary", "/l"}} {
		got := w.run(args...)
		require.Less(t, len(got.stdout)+len(got.stderr), 2000, args)
	}
}

// TestNamesAreEnoughToJoin has a queue with tens of megabytes of ids. A command that joins it, or finds it busy, reads only the
// ids of a few holders.
func TestNamesAreEnoughToJoin(t *testing.T) {
	const contenders = 60
	for _, args := range [][]string{{"lock", "-n"}, {"lock", "-w", "3s"}, {"elect", "-n"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			w := newWorld(t)
			session := w.server.OpenSession(time.Hour)
			for i := range contenders {
				w.server.Seed(zktest.Znode{Path: "/l/a-lock-" + fmt.Sprintf("%010d", i), Session: session, Data: []byte(strings.Repeat("x", 900_000))})
			}
			requests := w.server.Observe()
			got := w.run(append(args, "/l", "--", "true")...)
			require.Equal(t, 75, got.code, got.stderr)
			require.Contains(t, got.stderr, "held by ")
			read := map[string]bool{}
			for _, r := range requests.Requests(zktest.OpGetData) {
				if strings.HasPrefix(r.Path, "/l/a-lock-") {
					read[r.Path] = true
				}
			}
			require.LessOrEqual(t, len(read), 5, "ids")
		})
	}
}

func TestMistypedCommand(t *testing.T) {
	w := newWorld(t)
	got := w.run("lokc", "/l")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, `unknown command "lokc": did you mean lock?`)
}

func TestQuietTryIsSilentWhenBusy(t *testing.T) {
	w := newWorld(t)
	w.hold("/l", "ann")
	for _, args := range [][]string{{"lock", "-n"}, {"elect", "-n"}} {
		got := w.run(append(args, "-q", "-E", "9", "/l", "--", "true")...)
		require.Equal(t, 9, got.code, args)
		require.Empty(t, got.stdout+got.stderr, args)
	}
}
