package zktest_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// word sends a four-letter word, and returns the answer.
func (w world) word(srv *zktest.Server, word string, address ...string) string {
	w.Helper()
	conn := w.dial(srv, address...)
	defer func() { _ = conn.Close() }()
	require.NoError(w, conn.SetDeadline(time.Now().Add(patience)))
	_, err := io.WriteString(conn, word)
	require.NoError(w, err)
	answer, err := io.ReadAll(conn)
	require.NoError(w, err)
	return string(answer)
}

func TestFourLetterWords(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithSessionTimeouts(4*time.Second, 40*time.Second), zktest.WithTickTime(2*time.Second))
		c := w.session(srv)
		c.did(create("/a", 0))
		log := srv.Observe()
		require.Equal(w, "imok", w.word(srv, "ruok"))
		require.Equal(w, "Zookeeper version: 3.8-zktest\nConnections: 2\nZxid: 0x100000002\nMode: standalone\nNode count: 5\n", w.word(srv, "srvr"))
		_, port, err := net.SplitHostPort(srv.Addr())
		require.NoError(w, err)
		require.Equal(w, "clientPort="+port+"\ntickTime=2000\nmaxClientCnxns=0\nminSessionTimeout=4000\nmaxSessionTimeout=40000\nserverId=0\n", w.word(srv, "conf"))
		require.Regexp(w, fmt.Sprintf(`(?m)^ /\S+\[1\]\(queued=0,sid=0x%x,to=10000\)$`, c.id), w.word(srv, "cons"))
		require.Equal(w, "mntr is not executed because it is not in the whitelist.\n", w.word(srv, "mntr"))
		require.Empty(w, w.word(srv, "\xff\xff\xff\xff"), "no word")
		require.Empty(w, log.Requests(zktest.OpAny, zktest.OpConnect), "words are no requests")
		require.Equal(w, 1, srv.Connections())
	})
}

func TestFourLetterWordsOfAnEnsemble(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3), zktest.WithDialect(zktest.ZooKeeper36))
		a := srv.Addrs()
		srv.SetSessionTimeouts(time.Second, time.Minute, a[2])
		w.session(srv, a[1])
		require.Contains(w, w.word(srv, "srvr", a[0]), "Zookeeper version: 3.6-zktest\nConnections: 1\nZxid: 0x100000001\nMode: leader\n")
		require.Contains(w, w.word(srv, "srvr", a[1]), "Connections: 2\nZxid: 0x100000001\nMode: follower\n")
		require.Contains(w, w.word(srv, "conf", a[2]), "minSessionTimeout=1000\nmaxSessionTimeout=60000\nserverId=2\n")
		srv.Stop(a[0])
		require.Contains(w, w.word(srv, "srvr", a[1]), "Mode: leader\n")
		srv.Stop(a[1])
		for _, word := range []string{"srvr", "conf", "cons"} {
			require.Equal(w, "This ZooKeeper instance is not currently serving requests\n", w.word(srv, word, a[2]))
		}
		require.Equal(w, "imok", w.word(srv, "ruok", a[2]))
	})
}

func TestFourLetterWordsOfAClickHouseKeeper(t *testing.T) {
	require.True(t, strings.HasPrefix(tcp(t).word(zktest.NewServer(t, zktest.WithDialect(zktest.ClickHouseKeeper)), "srvr"), "ClickHouse Keeper version: zktest\n"))
}

func TestFrozenServerAnswersWordsAfterItResumes(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.Freeze()
		c := newRaw(w, w.dial(srv))
		c.write([]byte("ruok"))
		c.hearsNothing()
		srv.Heal()
		require.NoError(w, c.conn.SetReadDeadline(time.Now().Add(patience)))
		answer, err := io.ReadAll(c.in)
		require.NoError(w, err)
		require.Equal(w, "imok", string(answer))
	})
}
