package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestExpireOne(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		doomed, other := w.session(srv), w.session(srv)
		doomed.did(create("/a", 1))
		other.did(create("/b", 1))
		other.did(exists("/a", true))
		srv.Expire(doomed.id)
		require.Equal(w, []string{"b", "zookeeper"}, srv.Children("/"))
		kind, path := other.event()
		require.Equal(w, "Deleted /a", kind+" "+path)
		other.did(get("/b", false))
		doomed.end()
		require.Zero(w, doomed.again(w.dial(srv)).id)
		_, alive := srv.Session(doomed.id)
		require.False(w, alive)
	})
}

func TestExpireAll(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		a, b := w.session(srv), w.session(srv)
		a.did(create("/a", 1))
		b.did(create("/b", 1))
		b.did(create("/c", 0))
		srv.ExpireAll()
		a.end()
		b.end()
		require.Empty(w, srv.Sessions())
		require.Equal(w, []string{"c", "zookeeper"}, srv.Children("/"))
		w.session(srv).did(get("/c", false))
	})
}

func TestExpireAllEndsOldestFirst(t *testing.T) {
	srv := zktest.NewServer(t)
	parents := []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h"}
	for _, parent := range parents {
		c := tcp(t).session(srv)
		c.did(create(parent, 0))
		c.did(create(parent+"/x", 1))
	}
	srv.ExpireAll()
	var before int64
	for _, parent := range parents {
		_, stat, _ := srv.Get(parent)
		require.Greater(t, stat.Pzxid, before, parent)
		before = stat.Pzxid
	}
}

func TestExpireTwiceDoesNothing(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(create("/a", 1))
		c.did(get("/a", false))
		srv.Expire(c.id)
		srv.Expire(c.id)
		c.end()
	})
}

func TestExpireOfADisconnectedSession(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(create("/a", 1))
		srv.Disconnect(c.id)
		c.end()
		require.Equal(w, []string{"a", "zookeeper"}, srv.Children("/"))
		srv.Expire(c.id)
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
		require.Zero(w, c.again(w.dial(srv)).id)
	})
}

func TestExpireNotifiesTheRealClient(t *testing.T) {
	t.Parallel() // because a second of real time passes in it
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		conn := w.conn(srv)
		old := conn.SessionID()
		_, err := conn.Create("/a", nil, zk.FlagEphemeral, all)
		require.NoError(w, err)
		_, _, gone, err := conn.GetW("/a")
		require.NoError(w, err)
		srv.Expire(old)
		require.Error(w, testkit.Receive(w, gone, "the event").Err)
		testkit.Eventually(w, func() bool { return conn.SessionID() != old && conn.State() == zk.StateHasSession }, "a new session")
		found, _, err := conn.Exists("/a")
		require.NoError(w, err)
		require.False(w, found)
	})
}

// expires requires that a session ends at an instant, and not before.
func expires(tb testing.TB, srv *zktest.Server, c *raw, at time.Time) {
	tb.Helper()
	n, alive := srv.Session(c.id)
	require.True(tb, alive)
	require.Equal(tb, at, n.Expiry.UTC())
	until(at.Add(-1))
	_, alive = srv.Session(c.id)
	require.True(tb, alive, "ended before its time")
	until(at)
	_, alive = srv.Session(c.id)
	require.False(tb, alive, "has outlived its time")
}

func TestSessionExpiresWithTheTickInWhichItsTimeRunsOut(t *testing.T) {
	for _, test := range []struct{ tick, heard, timeout, want time.Duration }{
		{50 * time.Millisecond, 0, 4 * time.Second, 4050 * time.Millisecond},
		{50 * time.Millisecond, 1, 4 * time.Second, 4050 * time.Millisecond},
		{50 * time.Millisecond, 50*time.Millisecond - 1, 4 * time.Second, 4050 * time.Millisecond},
		{50 * time.Millisecond, 50 * time.Millisecond, 4 * time.Second, 4100 * time.Millisecond},
		{50 * time.Millisecond, 30 * time.Millisecond, 4021 * time.Millisecond, 4100 * time.Millisecond},
		{2 * time.Second, 0, 4 * time.Second, 6 * time.Second},
		{2 * time.Second, 1999 * time.Millisecond, 4 * time.Second, 6 * time.Second},
		{2 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		{time.Millisecond, 7 * time.Millisecond, 100 * time.Millisecond, 108 * time.Millisecond},
	} {
		t.Run("", func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithTickTime(test.tick))
				c := session(w, w.dial(srv), test.timeout)
				pass(test.heard)
				c.did(ping())
				expires(w, srv, c, began.Add(test.want))
				c.end()
			})
		})
	}
}

func TestEachRequestExtendsASession(t *testing.T) {
	for _, r := range []request{ping(), get("/", false), create("/a", 1), create("/none/a", 0), syncing("/"), {op: 0}} {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w)
			c := w.session(srv)
			pass(9 * time.Second)
			c.call(r)
			expires(w, srv, c, began.Add(19*time.Second+50*time.Millisecond))
		})
	}
}

func TestReconnectExtendsASession(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Disconnect(c.id)
		n, _ := srv.Session(c.id)
		require.Empty(w, n.Server)
		pass(9 * time.Second)
		c = c.again(w.dial(srv))
		require.NotZero(w, c.id)
		pass(time.Second)
		c.timeout = 2 * time.Second
		c = c.again(w.dial(srv)) // asks for another timeout
		expires(w, srv, c, began.Add(12*time.Second+50*time.Millisecond))
	})
}

func TestSessionTimeouts(t *testing.T) {
	srv := zktest.NewServer(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second:            time.Second,
		0:                       time.Second,
		999 * time.Millisecond:  time.Second,
		1001 * time.Millisecond: 1001 * time.Millisecond,
		2 * time.Second:         2 * time.Second,
		time.Hour:               2 * time.Second,
	} {
		c := session(t, tcp(t).dial(srv), asked)
		require.Equal(t, want, c.timeout)
		n, _ := srv.Session(c.id)
		require.Equal(t, want, n.Timeout)
	}
}

func TestTouchInterval(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithTouchInterval(time.Second))
		c := w.session(srv)
		pass(300 * time.Millisecond)
		c.did(ping())
		n, _ := srv.Session(c.id)
		require.Equal(w, began.Add(10050*time.Millisecond), n.Expiry.UTC(), "nobody has told the leader")
		until(began.Add(time.Second))
		n, _ = srv.Session(c.id)
		require.Equal(w, began.Add(11050*time.Millisecond), n.Expiry.UTC())
		until(began.Add(2500 * time.Millisecond))
		c.did(ping())
		until(began.Add(3 * time.Second))
		expires(w, srv, c, began.Add(13050*time.Millisecond))
	})
}
