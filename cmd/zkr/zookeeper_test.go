//go:build integration && linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// newRealWorld is a world on a real server. Each test has a namespace of its own.
func newRealWorld(t *testing.T) *world {
	t.Helper()
	servers := os.Getenv("ZKRECIPES_SERVERS")
	require.NotEmpty(t, servers, "run through integration/cmd/withzk")
	return &world{T: t, dir: t.TempDir(), env: []string{
		"ZKR_SERVERS=" + servers, "ZKR_SESSION_TIMEOUT=10s", fmt.Sprintf("ZKR_NAMESPACE=zkr-%d-%s", time.Now().UnixNano(), t.Name()),
	}}
}

func (w *world) realClient() *recipes.Client {
	w.Helper()
	client, err := recipes.Connect(w.Context(), strings.Split(os.Getenv("ZKRECIPES_SERVERS"), ","),
		recipes.WithNamespace(strings.TrimPrefix(w.env[2], "ZKR_NAMESPACE=")), recipes.WithSessionTimeout(10*time.Second))
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, client.Close()) })
	return client
}

// line is a connection that can fall silent, so that no data arrives any more.
type line struct {
	net.Listener
	server string
	mu     sync.Mutex // protects what is below
	silent bool
	work   sync.WaitGroup
	conns  []net.Conn
}

func newLine(w *world, server string) *line {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w, err)
	l := &line{Listener: listener, server: server}
	l.work.Go(l.accept) // ends with the listener
	w.Cleanup(func() {
		require.NoError(w, l.Close())
		l.mu.Lock()
		for _, conn := range l.conns {
			_ = conn.Close()
		}
		l.mu.Unlock()
		l.work.Wait()
	})
	return l
}

func (l *line) accept() {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.server)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			l.work.Go(func() { _, _ = io.Copy(unlessSilent{l, way[1]}, way[0]) }) // ends with the connections
		}
	}
}

func (l *line) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// unlessSilent drops what is written while the line is silent.
type unlessSilent struct {
	*line
	to io.Writer
}

func (u unlessSilent) Write(p []byte) (int, error) {
	u.mu.Lock()
	silent := u.silent
	u.mu.Unlock()
	if silent {
		return len(p), nil
	}
	return u.to.Write(p)
}

func TestZooKeeperLock(t *testing.T) {
	w := newRealWorld(t)
	require.Equal(t, result{7, "out\n", ""}, w.run("lock", "--grace", "1s", "/l", "--", "sh", "-c", "echo out; exit 7"))
	require.Equal(t, "/missing: no such path (a free lock may have none)\n", w.run("ls", "/missing").stdout)
	lease := w.holdWith(w.realClient(), "/l", "ann")
	require.Equal(t, 75, w.run("lock", "-n", "/l", "--", "true").code)
	var queues []struct {
		Contenders []struct {
			ID    string
			Token int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("ls", "-o", "json", "/l").stdout), &queues))
	require.Equal(t, "ann", queues[0].Contenders[0].ID)
	require.Equal(t, lease.FencingToken(), queues[0].Contenders[0].Token)
	require.Equal(t, 0, w.run("revoke", "/l").code)
	<-lease.Revoked()
}

func TestZooKeeperKick(t *testing.T) {
	w := newRealWorld(t)
	r := w.start("elect", "--grace", "1s", "/l", "--", "sh", "-c", `echo $ZKR_LOCK_ZNODE >> znodes; [ $(wc -l < znodes) = 2 ] && exit 9; sleep 100`)
	w.eventually(func() bool { return len(w.lines("znodes")) == 1 }, "it leads")
	require.Equal(t, 0, w.run("kick", "--yes", w.lines("znodes")[0]).code)
	require.Equal(t, 9, r.code(), "it has stood again")
}

func TestZooKeeperDoctor(t *testing.T) {
	w := newRealWorld(t)
	got := w.run("doctor", "--namespace", "/", "/locks")
	t.Logf("\n%s", got.stdout)
	version := regexp.MustCompile(`(?m)^(\w+) +\S+: version (\d+\.\d+\.\d+)`).FindStringSubmatch(got.stdout)
	require.Len(t, version, 3)
	if version[2] == "3.9.3" {
		require.Equal(t, "bad", version[1], "it loses committed data")
		require.Equal(t, 2, got.code)
	} else {
		require.NotEqual(t, "bad", version[1])
		require.Equal(t, 1, got.code)
	}
	require.Regexp(t, `(?m)^ok +\S+: tick `, got.stdout)
	require.Regexp(t, `(?m)^ok +clock: `, got.stdout)
	require.Regexp(t, `(?m)^ok +commit: `, got.stdout)
	require.Regexp(t, `(?m)^ok +/locks: this user may delete`, got.stdout)
}

// The server reports the client's address in the answer to cons, in the format of real servers.
func TestZooKeeperWho(t *testing.T) {
	w := newRealWorld(t)
	w.start("lock", "--id", "ann", "/l", "--", "sh", "-c", "echo $ZKR_LOCK_ZNODE > znode; exec sleep 100")
	znode := w.content("znode")
	for _, path := range []string{"/l", znode} {
		got := w.run("who", path)
		require.Equal(t, 0, got.code, got.stderr)
		require.Regexp(t, `^\S+:\d+  "ann" at `+znode, got.stdout)
	}
	require.Regexp(t, `:\d+ +\S+T\S+ +`+znode, w.run("ls", "-o", "wide", "/l").stdout)
}

// A stopped zkr reports for how long it did not run, and its command is dead at the next grant.
func TestZooKeeperStoppedZkr(t *testing.T) {
	w := newRealWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", "echo $$ > pid; while :; do sleep 0.05; done")
	pid := w.pid("pid")
	r.signal(syscall.SIGSTOP)
	lease := w.holdWith(w.realClient(), "/l", "next")
	require.False(t, isAlive(pid), "at the next grant")
	r.signal(syscall.SIGCONT)
	require.Equal(t, 74, r.code())
	require.Regexp(t, `^zkr: lock lost: \S+: this process did not run for \d+\.\ds\n$`, r.stderr.String())
	require.NoError(t, lease.Release())
}

func TestZooKeeperEightDates(t *testing.T) {
	w := newRealWorld(t)
	requireEightDates(t, w)
}

// With 50 commands whose connections fall silent, no command is alive at the next grant. The next contender is
// another zkr, whose first action is the check. Its session timeout is long, so that a busy machine does not cost it
// the lock.
func TestZooKeeperSilence(t *testing.T) {
	w := newRealWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	server, _, _ := strings.Cut(os.Getenv("ZKRECIPES_SERVERS"), ",")
	const cuts, batch = 50, 10
	alive := 0
	for round := range cuts / batch {
		front := newLine(w, server)
		var holders, next []*run
		for k := range batch {
			path := fmt.Sprintf("/silence/%d/%d", round, k)
			pid := fmt.Sprintf("pid-%d-%d", round, k)
			holders = append(holders, w.start("lock", "--servers", front.Addr().String(), "--grace", "500ms", path, "--", "sh", "-c",
				`trap "" TERM; echo $$ > `+pid+`; while :; do sleep 0.05; done`))
			w.pid(pid)
			next = append(next, w.start("lock", "--session-timeout", "30s", path, "--", "sh", "-c", `kill -0 $(cat `+pid+`) 2> /dev/null && echo alive; exit 0`))
		}
		front.silence()
		for k := range batch {
			require.Equal(t, 0, next[k].code(), next[k].stderr.String())
			if next[k].stdout.String() != "" {
				alive++
			}
			require.Equal(t, 74, holders[k].code(), holders[k].stderr.String())
		}
	}
	t.Logf("commands alive at the next grant: %d of %d", alive, cuts)
	require.Zero(t, alive)
}

func TestZooKeeperGrandchildren(t *testing.T) {
	w := newRealWorld(t)
	conn := w.realClient().Conn()
	namespace := "/" + strings.TrimPrefix(w.env[2], "ZKR_NAMESPACE=")
	requireNoGrandchildren(w, 100, func(path string) {
		children, _, err := conn.Children(namespace + path)
		require.NoError(t, err)
		require.Len(t, children, 1)
		require.NoError(t, conn.Delete(namespace+path+"/"+children[0], -1))
	})
}

// Workers outside the group end with the lock, although SIGTERM is enough for the group.
func TestZooKeeperWorkers(t *testing.T) {
	w := newRealWorld(t)
	r := w.start("lock", "--grace", "300ms", "/l", "--", "sh", "-c", `echo $ZKR_LOCK_ZNODE > znode; `+workers)
	pids := w.awaitWorkers()
	require.Equal(t, 0, w.run("kick", "--yes", w.content("znode")).code)
	require.Equal(t, 74, r.code())
	for _, pid := range pids {
		require.False(t, isAlive(pid))
	}
}

// A killed zkr takes its group along long before its session ends.
func TestZooKeeperKilledZkr(t *testing.T) {
	w := newRealWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", family)
	pids := []int{w.pid("parent"), w.pid("child"), w.pid("orphan")}
	killedAt := time.Now()
	r.signal(syscall.SIGKILL)
	w.awaitDead(pids...)
	require.Less(t, time.Since(killedAt), 2*time.Second)
	r.await()
}

// The scenes of a terminal that zkr and flock(1) have to play alike, on real servers.
func TestZooKeeperTerminal(t *testing.T) {
	for name, scene := range map[string]func(*shell){
		"pipeline": pipelineSharesTheTerminal, "less": lessBehindAPipe, "Ctrl-Z": ctrlZInAPipeline,
		"Ctrl-C while it reads": ctrlCWhileACommandOfAScriptReads, "Ctrl-Z while it reads": ctrlZWhileACommandOfAScriptReads,
	} {
		t.Run(name, func(t *testing.T) { scene(newShell(newRealWorld(t), binary+" lock /l --")) })
	}
}

// Without a reader of stderr, a revocation does not turn into SIGKILL.
func TestZooKeeperStderrWithoutAReader(t *testing.T) {
	w := newRealWorld(t)
	r := w.startWith(withoutReader(t), "lock", "/l", "--", "sh", "-c",
		`exec 2> /dev/null; trap 'echo > cleaned; exit 3' TERM; echo > up; while :; do sleep 0.02; done`)
	w.content("up")
	require.Equal(t, 0, w.run("revoke", "--wait", "10s", "/l").code)
	require.Equal(t, 3, r.code())
	require.FileExists(t, w.file("cleaned"))
}
