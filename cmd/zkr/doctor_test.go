//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// talkative is a proxy in front of a test server, and answers four-letter words.
type talkative struct {
	net.Listener
	mu      sync.Mutex // protects answers
	answers map[string]string
	behind  string
	work    sync.WaitGroup
}

// answerCons sets the answer to cons.
func (f *talkative) answerCons(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers["cons"] = text
}

func (f *talkative) answerTo(word string) (text string, isKnown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, isKnown = f.answers[word]
	return text, isKnown
}

func newTalkative(w *world, srvr, conf string) *talkative {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w, err)
	f := &talkative{Listener: listener, answers: map[string]string{"srvr": srvr, "conf": conf}, behind: w.server.Addr()}
	f.work.Go(f.accept) // ends with the listener
	w.Cleanup(func() {
		require.NoError(w, f.Close())
		require.NoError(w, w.server.Close()) // which ends the connections
		f.work.Wait()
	})
	return f
}

func (f *talkative) accept() {
	for {
		conn, err := f.Accept()
		if err != nil {
			return
		}
		f.work.Go(func() { f.serve(conn) }) // ends with the connection
	}
}

func (f *talkative) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	word := make([]byte, 4)
	if _, err := io.ReadFull(conn, word); err != nil {
		return
	}
	if answer, isKnown := f.answerTo(string(word)); isKnown {
		_, _ = io.WriteString(conn, answer)
		return
	}
	behind, err := net.Dial("tcp", f.behind)
	if err != nil {
		return
	}
	defer func() { _ = behind.Close() }()
	_, _ = behind.Write(word)
	f.work.Go(func() {
		_, _ = io.Copy(behind, conn)
		_ = behind.Close()
	})
	_, _ = io.Copy(conn, behind)
}

func srvr(version, mode string) string {
	return "Zookeeper version: " + version + "-abc, built on 2026-01-01\nLatency min/avg/max: 0/0.0/0\nMode: " + mode + "\n"
}

func conf(tick, least, most, syncLimit int) string {
	return fmt.Sprintf("clientPort=2181\ntickTime=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nsyncLimit=%d\n", tick, least, most, syncLimit)
}

// TestDoctor has a line for each fault of a server, and a code for the worst line.
func TestDoctor(t *testing.T) {
	good := conf(2000, 4000, 40000, 5)
	tests := []struct {
		name       string
		srvr, conf string
		want       string
		code       int
	}{
		{"all is right", srvr("3.9.4", "follower"), good, "ok     ADDRESS: version 3.9.4, follower", 1},
		{"it loses data", srvr("3.9.3", "leader"), good, "bad    ADDRESS: version 3.9.3 loses committed data (ZOOKEEPER-4925)", 2},
		{"it is old", srvr("3.4.13", "leader"), good, "change ADDRESS: version 3.4.13", 1},
		{"it knows no words", "", "", "change ADDRESS: its version is unknown", 1},
		{"it does not tell its configuration", srvr("3.8.4", "leader"), "conf is not executed", "change ADDRESS: ticks and limits", 1},
		{"ticks", srvr("3.8.4", "leader"), good, "ok     ADDRESS: tick 2s, session timeouts from 4s to 40s", 1},
		{"sessions below two ticks", srvr("3.8.4", "leader"), conf(2000, 1000, 40000, 2), "change ADDRESS: minSessionTimeout 1s is below two ticks", 1},
		{"timeout below two ticks", srvr("3.8.4", "leader"), conf(20000, 40000, 400000, 2), "bad    ADDRESS: the session timeout 30s is below two ticks", 2},
		{"a leader that hangs", srvr("3.8.4", "leader"), conf(2000, 4000, 40000, 10), "change ADDRESS: a leader that hangs is noticed after syncLimit × tickTime = 20s", 1},
		{"a leader that is missed soon", srvr("3.8.4", "leader"), good, "ok     ADDRESS: a leader that hangs is noticed after 10s", 1},
		{"one alone", srvr("3.8.4", "standalone"), conf(2000, 4000, 40000, 0), "change ADDRESS: standalone server", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			front := newTalkative(w, test.srvr, test.conf)
			got := w.run("doctor", "--servers", front.Addr().String(), "/locks")
			require.Equal(t, test.code, got.code, got.stdout)
			require.Contains(t, got.stdout, strings.ReplaceAll(test.want, "ADDRESS", front.Addr().String()))
			require.Contains(t, got.stdout, "ok     "+front.Addr().String()+": serves")
			require.Contains(t, got.stdout, "ok     session timeout: 30s")
			require.Contains(t, got.stdout, "ok     commit: ")
			require.Contains(t, got.stdout, "ok     clock: ")
			require.Contains(t, got.stdout, "change ACL of /: any client")
			for line := range strings.Lines(got.stdout) {
				require.Regexp(t, `^(ok    |change|bad   ) \S`, line)
			}
			require.Equal(t, []string{"zookeeper"}, w.server.Children("/"), "nothing is left behind")
		})
	}
}

// TestDoctorOfDev requires a note about the kind of server, and no advice about a zoo.cfg, which zkr dev does not
// have.
func TestDoctorOfDev(t *testing.T) {
	w := newWorld(t)
	address := w.server.Addr()
	got := w.run("doctor", "--servers", address)
	require.Equal(t, 1, got.code, got.stdout)
	require.Contains(t, got.stdout, "change "+address+": zkr dev, or a server of package zktest: it keeps everything in memory")
	require.Contains(t, got.stdout, "ok     "+address+": tick 50ms, session timeouts from 100ms to 1h0m0s")
	require.Equal(t, 2, strings.Count(got.stdout, "change "), "the other one is about the ACL")
}

// TestDoctorAsksEveryServer has one server per fault, and one that serves.
func TestDoctorAsksEveryServer(t *testing.T) {
	w := newWorld(t)
	one := newTalkative(w, srvr("3.9.4", "leader"), conf(2000, 4000, 40000, 5))
	two := newTalkative(w, srvr("3.9.4", "follower"), conf(1000, 2000, 20000, 5))
	dead, hung := deadAddress(t), hungAddress(t)
	got := w.run("doctor", "--servers", strings.Join([]string{one.Addr().String(), two.Addr().String(), dead, hung}, ","))
	require.Equal(t, 2, got.code, got.stdout)
	require.Contains(t, got.stdout, "change "+two.Addr().String()+": ticks and bounds of session timeouts differ from those of "+one.Addr().String())
	require.Contains(t, got.stdout, "bad    "+dead+": can't be reached")
	require.Contains(t, got.stdout, "bad    "+hung+": accepts connections, but does not answer within 3s: hung")
	var findings []struct{ Level, What, Text string }
	require.NoError(t, json.Unmarshal([]byte(w.run("doctor", "-o", "json", "--servers", one.Addr().String()+","+dead).stdout), &findings))
	require.Equal(t, "bad", findings[1].Level)
	require.Equal(t, dead, findings[1].What)
	require.Contains(t, findings[1].Text, "can't be reached")
}

// TestDoctorWithoutASession requires findings about all servers, although none grants a session.
func TestDoctorWithoutASession(t *testing.T) {
	w := newWorld(t)
	up := newTalkative(w, "This ZooKeeper instance is not currently serving requests\n", "")
	dead, hung := deadAddress(t), hungAddress(t)
	servers := strings.Join([]string{up.Addr().String(), dead, hung}, ",")
	w.server.Freeze()
	got := w.run("doctor", "--servers", servers)
	require.Equal(t, 2, got.code, got.stdout)
	require.Contains(t, got.stdout, "bad    "+up.Addr().String()+": up, but serves no client: no quorum (1 of 3)")
	require.Contains(t, got.stdout, "bad    "+hung+": accepts connections, but does not answer within 3s: hung")
	require.Contains(t, got.stdout, "bad    session: no server grants one")

	got = w.run("lock", "-w", "500ms", "--servers", servers, "/l", "--", "true")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, up.Addr().String()+": up, but serves no client: no quorum (1 of 3)")
	require.Contains(t, got.stderr, dead+": can't be reached")
	require.Contains(t, got.stderr, hung+": accepts connections, but does not answer within 3s: hung")
}

// TestDoctorOfSlowDisks has servers that are up, and commit nothing.
func TestDoctorOfSlowDisks(t *testing.T) {
	w := newWorld(t)
	follower := newTalkative(w, srvr("3.8.4", "follower"), "")
	electing := newTalkative(w, "This ZooKeeper instance is not currently serving requests\n", "")
	w.server.Freeze()
	got := w.run("doctor", "--servers", follower.Addr().String()+","+electing.Addr().String())
	require.Equal(t, 2, got.code, got.stdout)
	require.Contains(t, got.stdout, "bad    "+follower.Addr().String()+": up (follower), but did not commit a session within 3s: the servers' disks are slow or full")
	require.Contains(t, got.stdout, "bad    "+electing.Addr().String()+": up, but serves no client although 2 of 2 servers are up: it is starting, or has no leader; check the disks")
}

// Commits of 2.4 s are too slow for a session of 6 s. Doctor waits longer than such a client does, and measures them.
func TestDoctorMeasuresCommitsThatAreTooSlowForTheSession(t *testing.T) {
	w := newWorld(t)
	w.server.SlowCommits(2400 * time.Millisecond)
	got := w.run("doctor", "--session-timeout", "6s")
	require.Equal(t, 2, got.code, got.stdout)
	require.Regexp(t, `(?m)^change `+w.server.Addr()+`: serves, but commits are slow: a session took 2\.[4-9]`, got.stdout)
	require.Contains(t, got.stdout, "ok     session timeout: 6s, as asked for")
	require.Regexp(t, `(?m)^bad    commit: 2\.[4-9]\d*s, above T/3: leases are being lost; check the disks`, got.stdout)
}

// A server with maxClientCnxns connections from this host closes each further connection at once.
func TestDoctorOfTooManyConnections(t *testing.T) {
	w := newWorld(t)
	address := fullAddress(t)
	const want = "closes each connection from this host at once: more are open than its maxClientCnxns allows"
	got := w.run("doctor", "--servers", address)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stdout, "bad    "+address+": "+want)
	got = w.run("lock", "-w", "1s", "--servers", address, "/l", "--", "true")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, address+": "+want)
	require.Contains(t, got.stderr, "there are more from this address than maxClientCnxns allows", "so says the client")
}

// hungAddress accepts connections, and does nothing else.
func hungAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return listener.Addr().String() // the kernel accepts
}

// TestDoctorTimesSeveralCommits: one slow commit of five is enough to lose a lease.
func TestDoctorTimesSeveralCommits(t *testing.T) {
	for level, pause := range map[string]time.Duration{"bad    commit: 2.": 2200 * time.Millisecond, "change commit: ": 800 * time.Millisecond} {
		t.Run(level, func(t *testing.T) {
			w := newWorld(t)
			n := 0
			w.server.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpMulti {
					return zktest.Fault{}
				}
				if n++; n != 4 {
					return zktest.Fault{}
				}
				return zktest.Fault{Delay: pause}
			})
			got := w.run("doctor", "--session-timeout", "6s")
			require.Contains(t, got.stdout, level)
			require.Contains(t, got.stdout, "check the disks")
		})
	}
}

// TestDoctorOfAPath tries the operations of a lock at a path.
func TestDoctorOfAPath(t *testing.T) {
	w := newWorld(t)
	protect(w, "/team")
	got := w.run("doctor", "--namespace", "team", "/locks")
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stdout, "ok     ACL of /team: not open to all clients")
	require.Contains(t, got.stdout, "bad    /team/locks: this user may not list /team")
	require.NoError(t, os.WriteFile(w.file("right"), []byte("digest:ann:secret\n"), 0o600))
	got = w.run("doctor", "--auth-file", "right", "--namespace", "team", "/locks")
	for _, what := range []string{"list", "create in", "delete in"} {
		require.Contains(t, got.stdout, "ok     /team/locks: this user may "+what+" /team\n")
	}
	_, err := w.client().Conn().Create("/readable", nil, 0, append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "ann", "x")...))
	require.NoError(t, err)
	got = w.run("doctor", "/readable")
	require.Contains(t, got.stdout, "ok     /readable: this user may list")
	require.Contains(t, got.stdout, "bad    /readable: this user may not create")
	_, err = w.client().Conn().Create("/sticky", nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate))
	require.NoError(t, err)
	require.Contains(t, w.run("doctor", "/sticky").stdout, "bad    /sticky: this user may not delete")
	w.server.SetSessionTimeouts(3*time.Second, 3*time.Second)
	require.Contains(t, w.run("doctor").stdout, "change session timeout: 3s was granted instead of 30s")
	require.Equal(t, 64, w.run("doctor", "-o", "xml").code)
	require.Equal(t, 64, w.run("doctor", "relative").code)
}

// TestDoctorOfAPathThatIsDeleted deletes the znode that doctor just saw or created.
func TestDoctorOfAPathThatIsDeleted(t *testing.T) {
	deleteBefore := func(w *world, op zktest.Op, prefix string, path func(r zktest.Request) string) {
		isDeleted := false
		w.server.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == op && strings.HasPrefix(r.Path, prefix) && !isDeleted {
				isDeleted = true
				w.server.Delete(path(r))
			}
			return zktest.Fault{}
		})
	}
	t.Run("the directory", func(t *testing.T) { // like an unused container
		w := newWorld(t)
		w.server.Put("/team/locks", nil)
		deleteBefore(w, zktest.OpCreate, "/team/locks/", func(zktest.Request) string { return "/team/locks" })
		got := w.run("doctor", "/team/locks")
		require.Equal(t, 1, got.code, got.stdout)
		require.Contains(t, got.stdout, "ok     /team/locks: this user may create in /team\n")
		require.Contains(t, got.stdout, "ok     /team/locks: this user may delete in /team\n")
	})
	t.Run("the znode", func(t *testing.T) {
		w := newWorld(t)
		w.server.Put("/locks", nil)
		deleteBefore(w, zktest.OpExists, "/locks/zkr-doctor", func(r zktest.Request) string { return r.Path })
		got := w.run("doctor", "/locks")
		require.NotContains(t, got.stdout, "clock", "no time was read")
		require.Contains(t, got.stdout, "another client deleted")
	})
	t.Run("another doctor", func(t *testing.T) { // with the same process id, as in two containers, which was once the whole name
		w := newWorld(t)
		session := w.server.OpenSession(time.Hour)
		isMade := false
		w.server.Inject(func(r zktest.Request) zktest.Fault {
			if name, isProbe := strings.CutPrefix(r.Path, "/locks/zkr-doctor-"); isProbe && r.Op == zktest.OpCreate && !isMade {
				isMade = true
				pid, _, _ := strings.Cut(name, "-")
				w.server.Seed(zktest.Znode{Path: "/locks/zkr-doctor-" + pid, Session: session})
			}
			return zktest.Fault{}
		})
		w.server.Put("/locks", nil)
		require.Contains(t, w.run("doctor", "/locks").stdout, "ok     /locks: this user may create in /locks\n")
	})
}

// TestDoctorRefusesAnInvalidPath requires a usage error, not a finding about permissions.
func TestDoctorRefusesAnInvalidPath(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"", "//x", "/a/../b", "/a\tb", "/zookeeper/x"} {
		got := w.run("doctor", path)
		require.Equal(t, 64, got.code, "%q: %s", path, got.stdout)
		require.Empty(t, got.stdout)
		require.NotContains(t, got.stderr, "\t")
	}
}
