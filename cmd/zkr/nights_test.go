//go:build linux

package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// night is an incident. The output of the first command has to name the cause, within seconds, in words that lead to the right
// action.
type night struct {
	prepare func(w *world)
	command []string
	code    int
	says    []string // on stdout or stderr, A standing for the first server's address
	not     []string
}

// threeServers replaces the server of a world by an ensemble.
func threeServers(w *world) {
	w.Helper()
	w.server = zktest.NewServer(w.T, zktest.WithServers(3))
	w.env[0] = "ZKR_SERVERS=" + strings.Join(w.server.Addrs(), ",")
}

func TestNights(t *testing.T) {
	nights := map[string]night{
		"one server of three is down": {
			prepare: func(w *world) { threeServers(w); w.server.Stop(w.server.Addrs()[0]) },
			command: []string{"doctor"}, code: 2, says: []string{"bad    A: can't be reached: dial tcp A: connect: connection refused: no process listens there; start it, or check its log for why it stopped (a full disk, for example)"}, not: []string{"no quorum"},
		},
		"the quorum is lost": {
			prepare: func(w *world) { threeServers(w); w.server.Stop(w.server.Addrs()[1:]...) },
			command: []string{"lock", "-w", "2s", "/jobs/report", "--", "true"}, code: 69, says: []string{"A: up, but serves no client: no quorum (1 of 3)"},
		},
		"a server hangs": {
			prepare: func(w *world) {
				hung := hungAddress(w.T)
				w.env[0] = "ZKR_SERVERS=" + hung + "," + w.server.Addr()
			},
			command: []string{"doctor"}, code: 2, says: []string{"bad    A: accepts connections, but does not answer within 3s: hung"},
		},
		"the servers have TLS now": {
			prepare: func(w *world) { serveTLS(w, time.Hour) },
			command: []string{"ls", "/jobs"}, code: 69, says: []string{"A: speaks TLS on this port, but zkr does not: give --tls-ca"}, not: []string{"does not answer"},
		},
		"the client certificate has expired": {
			prepare: func(w *world) { w.env = append(w.env, serveTLS(w, -time.Minute)...) },
			command: []string{"doctor"}, code: 2, says: []string{"bad    A: TLS with A: certificate expired: of the client"}, not: []string{"hung", "can't be reached"},
		},
		"too many connections from this host": {
			prepare: func(w *world) { w.env[0] = "ZKR_SERVERS=" + fullAddress(w.T) },
			command: []string{"doctor"}, code: 2, says: []string{"bad    A: closes each connection from this host at once", "maxClientCnxns"},
		},
		"the disks are slow": {
			prepare: func(w *world) { w.server.SlowCommits(1200 * time.Millisecond); w.env[1] = "ZKR_SESSION_TIMEOUT=6s" },
			command: []string{"doctor"}, code: 1, says: []string{"serves, but commits are slow", "change commit: 1.", "check the disks"},
		},
		"the disk of the only server is full": { // the process ends with its next write
			prepare: func(w *world) {
				w.env[0] = "ZKR_SERVERS=" + newTalkative(w, srvr("3.8.0", "standalone"), "").Addr().String()
				w.server.Freeze()
			},
			command: []string{"doctor"}, code: 2, says: []string{"bad    A: up (standalone), but did not commit a session within 3s: the servers' disks are slow or full"},
		},
		"the holder's work hangs": {
			prepare: func(w *world) { w.hold("/jobs/report", "web-1") },
			command: []string{"lock", "-n", "/jobs/report", "--", "true"}, code: 75, says: []string{`/jobs/report is busy: held by "web-1" at /jobs/report/_c_`, "since"},
		},
		"another recipe uses the path": {
			prepare: func(w *world) {
				w.server.Seed(zktest.Znode{Path: "/jobs/report/_c_x-latch-0000000001", Session: w.server.OpenSession(time.Hour)})
			},
			command: []string{"lock", "/jobs/report", "--", "true"}, code: 64, says: []string{"/jobs/report is used as a latch, not as a mutex"},
		},
		"a typo in the chroot": {
			prepare: func(w *world) { w.env[0] += "/jbos" },
			command: []string{"lock", "/report", "--", "true"}, code: 64, says: []string{"the chroot /jbos does not exist"},
		},
		"the clock of the leader is wrong": {
			prepare: func(w *world) { w.server.SetClock(time.Hour) },
			command: []string{"doctor", "/jobs"}, code: 1, says: []string{"change clock: that of the leader differs by "},
		},
		"an ACL forbids the path": {
			prepare: func(w *world) { protect(w, "/jobs") },
			command: []string{"doctor", "/jobs/report"}, code: 2, says: []string{"bad    /jobs/report: this user may not list /jobs"},
		},
		"an ACL forbids to create": {
			prepare: func(w *world) {
				_, err := w.client().Conn().Create("/jobs", nil, 0, append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "ann", "x")...))
				require.NoError(w, err)
			},
			command: []string{"lock", "/jobs/report", "--", "true"}, code: 69, says: []string{"no permission to create children of /jobs"},
		},
	}
	for name, n := range nights {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n.prepare(w)
			first, _, _ := strings.Cut(strings.TrimPrefix(w.env[0], "ZKR_SERVERS="), ",")
			began := time.Now()
			got := w.run(n.command...)
			took := time.Since(began)
			text := got.stdout + got.stderr
			t.Logf("%.1f s, exit %d: zkr %s\n%s", took.Seconds(), got.code, strings.Join(n.command, " "), text)
			require.Equal(t, n.code, got.code, text)
			for _, says := range n.says {
				require.Contains(t, text, strings.ReplaceAll(says, "A:", first+":"))
			}
			for _, not := range n.not {
				require.NotContains(t, text, not)
			}
			require.Less(t, took, patience)
		})
	}
}

// serveTLS replaces the server of a world by one with TLS, and returns the environment for it. The client's certificate is valid for a time.
func serveTLS(w *world, validFor time.Duration) (environment []string) {
	w.Helper()
	certificate, key := writeCertificate(w.T, w.dir)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(w, err)
	known := x509.NewCertPool()
	known.AddCert(pair.Leaf)
	clients := filepath.Join(w.dir, "client")
	require.NoError(w, os.Mkdir(clients, 0o700))
	clientCertificate, clientKey := writeCertificateFor(w.T, clients, validFor)
	content, err := os.ReadFile(clientCertificate)
	require.NoError(w, err)
	require.True(w, known.AppendCertsFromPEM(content))
	w.server = zktest.NewServer(w.T, zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
	w.env[0] = "ZKR_SERVERS=" + w.server.Addr()
	return []string{"ZKR_TLS_CA=" + certificate, "ZKR_TLS_CERT=" + clientCertificate, "ZKR_TLS_KEY=" + clientKey}
}

// fullAddress closes each connection at once, as a server does that has maxClientCnxns connections from a host.
func fullAddress(t *testing.T) string {
	t.Helper()
	full, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = full.Close() })
	go func() { // ends with the listener
		for {
			conn, err := full.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return full.Addr().String()
}
