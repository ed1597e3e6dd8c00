package testkit

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Quiet is a logger that drops zk.Conn's messages about broken connections.
type Quiet struct{}

// Printf drops the line.
func (Quiet) Printf(string, ...any) {}

// Conn returns a plain connection with a session, closed at the end of the test.
func Conn(tb testing.TB, servers []string, timeout time.Duration, opts ...func(*zk.Conn)) *zk.Conn {
	tb.Helper()
	settings := func(c *zk.Conn) {
		zk.WithLogger(Quiet{})(c)
		for _, opt := range opts {
			opt(c)
		}
	}
	conn, events, err := zk.Connect(servers, timeout, settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	late := time.NewTimer(Patience)
	defer late.Stop()
	for conn.State() != zk.StateHasSession {
		select {
		case <-events: // instead of polling, because no virtual time may pass
		case <-late.C:
			tb.Fatalf("not within %v: a session", Patience)
		}
	}
	return conn
}

// Path returns a unique path of one segment, with the test's name in the segment.
func Path(tb testing.TB) string {
	tb.Helper()
	name := strings.NewReplacer("/", "-", " ", "_", "'", "", ",", "").Replace(tb.Name())
	return "/" + name + "-" + rand.Text()
}
