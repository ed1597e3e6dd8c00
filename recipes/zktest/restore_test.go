package zktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// refused requires the server to hang up on a handshake of the session.
func (c *raw) refused(w world, srv *zktest.Server) {
	w.Helper()
	next := newRaw(w, w.dial(srv))
	next.id, next.password, next.seen = c.id, c.password, c.seen
	next.hail(c.timeout)
	next.end()
}

func TestWipeForgetsEverything(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		empty := srv.Dump()
		c := w.session(srv)
		c.did(create("/kept", 0))
		c.did(create("/owned", 1))
		srv.Wipe()
		c.end()
		require.Equal(w, empty, srv.Dump())
		require.Empty(w, srv.Sessions())

		c.refused(w, srv)
		c.refused(w, srv) // as often as it asks
		fresh := w.session(srv)
		fresh.did(create("/later", 1))
		require.Less(w, fresh.seen, c.seen, "zxids begin again")
		c.refused(w, srv)
		c.seen = 0
		require.Zero(w, c.again(w.dial(srv)).id, "such a session there is none")
	})
}

func TestWipedServerRefusesClientsUntilItsZxidCatchesUp(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(create("/a", 0))
		srv.Wipe()
		fresh := w.session(srv)
		for fresh.seen < c.seen {
			c.refused(w, srv)
			fresh.did(set("/", "x"))
		}
		require.Zero(w, c.again(w.dial(srv)).id, "expired, like every session that a server does not know")
	})
}

func TestRestoreRevivesSessionsOfTheBackup(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		old := w.session(srv)
		old.did(create("/then", 1))
		old.did(create("/removed", 0))
		seen := old.seen
		backup, then := srv.Backup(), srv.Dump()

		young := w.session(srv)
		young.did(create("/young", 1))
		old.did(remove("/removed"))
		old.did(remove("/then"))
		srv.Restore(backup)
		old.end()
		young.end()
		require.Equal(w, then, srv.Dump())
		old.refused(w, srv)
		young.refused(w, srv)

		back := *old
		back.seen = seen
		next := back.again(w.dial(srv))
		require.Equal(w, old.id, next.id, "who has seen nothing else comes back")
		next.did(remove("/then")) // the backup keeps it
		next.did(create("/now", 1))
		srv.Restore(backup)
		require.Equal(w, then, srv.Dump())
		srv.Expire(old.id)
		require.Equal(w, []string{"removed", "zookeeper"}, srv.Children("/"))
	})
}

func TestRestoredSessionHasItsTimeoutAgain(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(create("/then", 1))
		backup := srv.Backup()
		until(began.Add(time.Hour))
		require.Empty(w, srv.Sessions())
		srv.Restore(backup)
		expires(w, srv, c, began.Add(time.Hour+10050*time.Millisecond))
		require.Nil(w, srv.Children("/then"))
	})
}

func TestRestoredEnsembleElectsALeader(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		c := w.session(srv)
		c.did(create("/then", 1))
		backup := srv.Backup()
		c.did(create("/later", 1))
		srv.Restore(backup)
		srv.ElectLeader()
		next := c.again(w.dial(srv))
		require.Equal(w, c.id, next.id, "the new epoch is ahead of what it has seen")
		require.Equal(w, "NoNode", proto.CodeName(next.call(exists("/later", false)).code))
	})
}

func TestRestoreReachesServersThatAreCutOff(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		c.did(create("/a", 0))
		srv.Isolate(srv.Addr())
		srv.Wipe()
		c.end()
		w.session(srv).did(create("/a", 0))
	})
}
