package main_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// talkative is a server that answers four-letter words, in front of the one of a test.
type talkative struct {
	net.Listener
	answers map[string]string
	behind  string
	work    sync.WaitGroup
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
	if answer, isKnown := f.answers[string(word)]; isKnown {
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

// Each fault of a server has a line that says what to change.
func TestDoctor(t *testing.T) {
	good := conf(2000, 4000, 40000, 5)
	tests := []struct {
		name       string
		srvr, conf string
		want       string
	}{
		{"all is right", srvr("3.9.4", "follower"), good, "ok       ADDRESS: version 3.9.4, follower"},
		{"it loses data", srvr("3.9.3", "leader"), good, "change   ADDRESS: version 3.9.3 loses committed data (ZOOKEEPER-4925)"},
		{"it is old", srvr("3.4.13", "leader"), good, "change   ADDRESS: version 3.4.13"},
		{"it is silent", "", "", "unknown  ADDRESS: version"},
		{"it does not tell its configuration", srvr("3.8.4", "leader"), "conf is not executed", "unknown  ADDRESS: ticks and limits"},
		{"ticks", srvr("3.8.4", "leader"), good, "ok       ADDRESS: tick 2s, session timeouts from 4s to 40s"},
		{"sessions below two ticks", srvr("3.8.4", "leader"), conf(2000, 1000, 40000, 2), "change   ADDRESS: minSessionTimeout 1s is below two ticks"},
		{"timeout below two ticks", srvr("3.8.4", "leader"), conf(20000, 40000, 400000, 2), "change   ADDRESS: the session timeout 30s is below two ticks"},
		{"a leader that hangs", srvr("3.8.4", "leader"), conf(2000, 4000, 40000, 10), "change   ADDRESS: a leader that hangs is noticed after syncLimit × tickTime = 20s"},
		{"a leader that is missed soon", srvr("3.8.4", "leader"), good, "ok       ADDRESS: a leader that hangs is noticed after 10s"},
		{"one alone", srvr("3.8.4", "standalone"), conf(2000, 4000, 40000, 0), "change   ADDRESS: it stands alone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			front := newTalkative(w, test.srvr, test.conf)
			got := w.run("doctor", "--servers", front.Addr().String())
			require.Equal(t, 0, got.code, got.stderr)
			require.Contains(t, got.stdout, strings.ReplaceAll(test.want, "ADDRESS", front.Addr().String()))
			require.Contains(t, got.stdout, "ok       session timeout: 30s")
			require.Contains(t, got.stdout, "ok       clock: ")
			require.Contains(t, got.stdout, "change   ACL of /: everybody")
			for line := range strings.Lines(got.stdout) {
				require.Regexp(t, `^(ok      |change  |unknown ) \S`, line)
			}
			require.Equal(t, []string{"zookeeper"}, w.server.Children("/"), "nothing is left behind")
		})
	}
}

func TestDoctorOfSeveralServers(t *testing.T) {
	w := newWorld(t)
	one := newTalkative(w, srvr("3.9.4", "leader"), conf(2000, 4000, 40000, 5))
	two := newTalkative(w, srvr("3.9.4", "follower"), conf(1000, 2000, 20000, 5))
	dead := deadAddress(t)
	got := w.run("doctor", "--servers", one.Addr().String()+","+two.Addr().String()+","+dead)
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, "change   "+two.Addr().String()+": ticks and bounds of session timeouts differ from those of "+one.Addr().String())
	require.Contains(t, got.stdout, "change   "+dead+": can't be reached")
	require.Equal(t, 69, w.run("doctor", "--servers", dead).code)
}

func TestDoctorOfAProtectedNamespace(t *testing.T) {
	w := newWorld(t)
	protect(w, "/team")
	got := w.run("doctor", "--namespace", "team")
	require.Contains(t, got.stdout, "unknown  ACL of /team")
	require.Contains(t, got.stdout, "unknown  clock: /team/zkr-doctor-")
	_, err := w.client().Conn().Create("/readable", nil, 0, append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "ann", "x")...))
	require.NoError(t, err)
	require.Contains(t, w.run("doctor", "--namespace", "readable").stdout, "ok       ACL of /readable")
	w.server.SetSessionTimeouts(3*time.Second, 3*time.Second)
	require.Contains(t, w.run("doctor").stdout, "change   session timeout: 3s was granted in place of 30s")
}
