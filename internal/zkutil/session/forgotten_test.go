package session_test

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// timeout is the session timeout in the tests of servers that have forgotten something.
const timeout = 6 * time.Second

// backIn is when a client has a new session at the latest after servers lost its session. It is the timeout, for which
// all servers have to refuse it, and two rounds of attempts.
const backIn = timeout + 3*time.Second

// logged returns a client's configuration, and its log from Warn on.
func logged(srv *fixture.Ensemble, servers ...string) (session.Config, *testkit.Log) {
	cfg, log := srv.Config(timeout, servers...), new(testkit.Log)
	cfg.Logger = log.Logger(slog.LevelWarn)
	return cfg, log
}

// warnings returns the records of sessions that were given up.
func warnings(log *testkit.Log) (found []string) {
	for _, line := range log.Take() {
		if strings.Contains(line, forgotten) {
			found = append(found, line)
		}
	}
	return found
}

// forgotten is in the record of a session that is given up.
const forgotten = "lost transactions"

// work is a hundred transactions, so that what a client sees next is far ahead of new servers.
func work(srv *fixture.Ensemble) {
	for range 100 {
		srv.Put("/work", nil)
	}
}

// isBack reports whether a client is connected with another session than an old one.
func isBack(s *session.Session, old int64) bool {
	return s.State() == connstate.Connected && s.IsConnected() && fixture.SessionID(s) != 0 && fixture.SessionID(s) != old
}

func TestNewSessionAfterServersWereEmptied(t *testing.T) {
	for name, servers := range map[string]int{"one server": 1, "two servers": 2} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv, srv.Addrs()[:servers]...)
				holder, waiter := fixture.Connect(t, cfg), fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
				work(srv)
				e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
				turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
				fixture.Settle()
				ids := []int64{fixture.SessionID(holder), fixture.SessionID(waiter)}
				token := e.Token()

				start := time.Now()
				srv.Wipe()
				synctest.Wait() // a heartbeat was perhaps answered just before
				trustedUntil := e.TrustedUntil()
				endedAt, cause := bubble.Ended(t, e)
				require.ErrorIs(t, cause, zkutil.ErrSessionLost)
				require.False(t, endedAt.After(trustedUntil))
				bubble.Eventually(t, backIn, func() bool { return isBack(holder, ids[0]) && isBack(waiter, ids[1]) })
				require.GreaterOrEqual(t, time.Since(start), timeout)

				got := <-turn
				require.NoError(t, got.Err)
				require.Less(t, got.Lease.Token(), token, "tokens begin again")
				require.Len(t, srv.Sessions(), 2, "nobody leaves a session behind")
				lines := warnings(log)
				require.Len(t, lines, 1)
				require.Contains(t, lines[0], "level=WARN")
				require.NoError(t, got.Lease.Leave())
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire).Leave())
				srv.Disconnect() // the next handshake names what the new session saw
				bubble.Eventually(t, time.Second, func() bool { return holder.IsConnected() && waiter.IsConnected() })
				require.Len(t, srv.Sessions(), 2)
			})
		})
	}
}

// The backup has the session and a znode of it, which was a hold at that time. No client takes it for one again.
func TestNewSessionBesideTheOldOneOfABackup(t *testing.T) {
	for name, isReleased := range map[string]bool{"held until the restore": false, "released before": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv)
				s := fixture.Connect(t, cfg)
				lock := fixture.MutexOn(s, "/m")
				e := bubble.Acquire(t, lock.Acquire)
				old, znodes := fixture.SessionID(s), srv.Children("/m")
				backup := srv.Backup()
				work(srv)
				bubble.Pass(2 * time.Second) // heartbeats, which the backup lacks
				if isReleased {
					require.NoError(t, e.Leave())
				}

				restored := time.Now()
				srv.Restore(backup)
				_, cause := bubble.Ended(t, e)
				require.Equal(t, isReleased, errors.Is(cause, zkutil.ErrReleased))
				require.Equal(t, znodes, srv.Children("/m"))
				turn := bubble.Start(t.Context(), lock.Acquire)
				bubble.Eventually(t, backIn, func() bool { return isBack(s, old) })
				got := <-turn
				require.NoError(t, got.Err)
				require.GreaterOrEqual(t, got.At.Sub(restored), timeout, "the old znode is ahead until its session ends")
				require.LessOrEqual(t, got.At.Sub(restored), backIn)
				require.NotEqual(t, e.Path(), got.Lease.Path())
				require.Len(t, srv.Children("/m"), 1)
				require.Len(t, warnings(log), 1)
				require.NoError(t, got.Lease.Leave())
				bubble.Eventually(t, time.Second, func() bool { return !srv.Alive(old) })
			})
		})
	}
}

// An idle client has no hold that could end, and no request that could fail.
func TestIdleClientComesBackToEmptiedServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv)
		s := fixture.Connect(t, cfg)
		old := fixture.SessionID(s)
		work(srv)
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave()) // whose answers show it the last zxid
		bubble.Pass(timeout)
		srv.Wipe()
		bubble.Eventually(t, backIn, func() bool { return isBack(s, old) })
		require.Len(t, warnings(log), 1)
	})
}

// A client gets a new session on emptied servers that commit slowly, however long a probe takes.
func TestClientComesBackToEmptiedServersThatCommitSlowly(t *testing.T) {
	for _, slow := range []time.Duration{timeout / 14, timeout / 11, timeout / 7, timeout / 5, timeout / 2} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout))
			work(srv)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave()) // whose answers show it the last zxid
			bubble.Pass(timeout)
			old := fixture.SessionID(s)
			srv.SlowCommits(slow)
			srv.Wipe()
			bubble.Eventually(t, 5*timeout+10*slow, func() bool { return isBack(s, old) })
			srv.SlowCommits(0)
		})
	}
}

// lag makes a server refuse the handshakes of sessions, as a follower that lacks transactions that they saw. It takes new
// sessions, for which it asks its leader.
func lag(srv *fixture.Ensemble, servers ...string) (end func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		isLate := len(servers) == 0 || r.Server == servers[0]
		return fixture.Cut(r.Op == zktest.OpConnect && r.Session != 0 && isLate, zktest.RequestLost)
	})
}

func TestLaggingFollowerCostsNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv, srv.A, srv.B)
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		id := fixture.SessionID(s)
		sessions := srv.Log.Requests(zktest.OpClose)
		end := lag(srv, srv.A)
		for range 20 {
			srv.Disconnect()
			bubble.Pass(timeout / 4)
		}
		end()
		bubble.Pass(time.Second)
		require.NoError(t, e.Context().Err())
		require.Equal(t, id, fixture.SessionID(s))
		require.Equal(t, sessions, srv.Log.Requests(zktest.OpClose), "nobody has asked for another session")
		require.Empty(t, log.Take())
		require.NoError(t, e.Leave())
	})
}

// All servers refuse the session, and take a new one, but their transactions continue from those that the client saw.
func TestServersThatLagForLongAreAwaited(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv, srv.A, srv.B)
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		end := lag(srv)
		srv.Disconnect()
		bubble.Pass(timeout + timeout/2)
		require.Empty(t, warnings(log))
		require.Empty(t, srv.Sessions(), "the old one has expired, and none was left")
		end()
		bubble.Eventually(t, 2*time.Second, func() bool { return isBack(s, id) })
		require.Empty(t, warnings(log), "a server has said that it has ended the session")
	})
}

// Servers without a quorum refuse all clients, and keep the session.
func TestSessionSurvivesTheAbsenceOfAQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv, srv.A, srv.B)
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		srv.Stop() // so that no session ages
		srv.Restart()
		end := srv.Inject(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpConnect, zktest.RequestLost)
		})
		srv.ElectLeader()
		isUp := time.AfterFunc(5*timeout-time.Second, srv.ElectLeader) // which gives each session a timeout from then on
		defer isUp.Stop()
		for range 4 {
			bubble.Pass(timeout)
			srv.ElectLeader()
		}
		bubble.Pass(timeout - time.Second/2)
		end()
		bubble.Eventually(t, 3*time.Second, func() bool { return s.IsConnected() })
		require.Equal(t, id, fixture.SessionID(s))
		require.Empty(t, warnings(log))
	})
}

// One server of three is emptied and started alone by mistake. The others have the session.
func TestOneEmptiedServerDoesNotEndTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, alone := fixture.NewEnsemble(t), fixture.NewEnsemble(t)
		alone.Wipe()
		cfg, log := logged(srv, srv.A, "alone:1")
		dial := cfg.Dialer
		isBroken := false
		cfg.Dialer = func(network, address string, limit time.Duration) (conn net.Conn, err error) {
			switch {
			case address != "alone:1":
				return dial(network, address, limit)
			case !isBroken:
				return nil, fixture.ErrBroken
			default:
				return alone.Dial(network, alone.A, limit)
			}
		}
		s := fixture.Connect(t, cfg)
		bubble.Pass(time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		isBroken = true
		id := fixture.SessionID(s)
		for range 10 {
			srv.Disconnect()
			bubble.Pass(timeout / 2)
		}
		require.NoError(t, e.Context().Err())
		require.Equal(t, id, fixture.SessionID(s))
		require.Empty(t, log.Take())
		require.Empty(t, alone.Sessions())
		require.NoError(t, e.Leave())
	})
}

// Servers without a quorum are probed a few times within a timeout, whether they hang up on probes or are silent.
func TestProbesAreFew(t *testing.T) {
	for name, lost := range map[string]zktest.Loss{"hang up": zktest.RequestLost, "silent": zktest.NoAnswer} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv, srv.A, srv.B)
				s := fixture.Connect(t, cfg)
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
				all := srv.Observe()
				srv.Inject(func(r zktest.Request) zktest.Fault {
					switch {
					case r.Op != zktest.OpConnect:
						return zktest.Fault{}
					case r.Session != 0:
						return zktest.Fault{Lost: zktest.RequestLost}
					default:
						return zktest.Fault{Lost: lost}
					}
				})
				srv.Disconnect()
				bubble.Pass(11 * timeout)
				probes := 0
				for _, r := range all.Requests(zktest.OpConnect) {
					if r.Session == 0 {
						probes++
					}
				}
				require.Positive(t, probes)
				require.LessOrEqual(t, probes, 2*10*3+2, "of two servers, three times each within a timeout")
				require.Empty(t, warnings(log))
				if lost == zktest.NoAnswer { // then Close does not wait for a probe
					bubble.Eventually(t, timeout, func() bool { return srv.Open() == 1 && strings.Contains(lastOf(all), "a new session") })
				}
				start := time.Now()
				require.NoError(t, s.Close())
				require.Less(t, time.Since(start), 2*time.Second)
				require.Zero(t, srv.Open())
			})
		})
	}
}

// lastOf describes the latest handshake.
func lastOf(log *zktest.Log) string {
	requests := log.Requests(zktest.OpConnect)
	return requests[len(requests)-1].String()
}

// The close of a probe may be lost. Its session ends soon, and another probe follows.
func TestLostCloseOfAProbe(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv)
		s := fixture.Connect(t, cfg)
		work(srv)
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		old := fixture.SessionID(s)
		srv.Wipe()
		srv.DropRequest(zktest.OpClose, 1)
		bubble.Eventually(t, backIn+timeout/3, func() bool { return isBack(s, old) })
		require.Len(t, warnings(log), 1)
		bubble.Eventually(t, timeout/3, func() bool { return len(srv.Sessions()) == 1 })
	})
}

// On every kind of server, clients reconnect to servers that were emptied, or that have an old backup, and the lock works again. The
// holder does not outlast its trust.
func TestWayBackOnEveryDialect(t *testing.T) {
	lose := map[string]func(*fixture.Ensemble, *zktest.Backup){
		"emptied":  func(srv *fixture.Ensemble, _ *zktest.Backup) { srv.Wipe() },
		"restored": func(srv *fixture.Ensemble, backup *zktest.Backup) { srv.Restore(backup) },
	}
	for _, dialect := range []zktest.Dialect{
		zktest.ZooKeeper34, zktest.ZooKeeper35, zktest.ZooKeeper36, zktest.ZooKeeper37, zktest.ZooKeeper38, zktest.ZooKeeper39,
		zktest.ZooKeeper310, zktest.ClickHouseKeeper,
	} {
		for name, loseData := range lose {
			t.Run(dialect.String()+" "+name, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := fixture.NewEnsemble(t, zktest.WithDialect(dialect))
					holder, waiter := fixture.Connect(t, srv.Config(timeout)), fixture.Connect(t, srv.Config(timeout))
					e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
					turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
					fixture.Settle()
					backup := srv.Backup()
					work(srv)
					bubble.Pass(2 * time.Second) // heartbeats, which the backup lacks
					old := fixture.SessionID(holder)

					start := time.Now()
					loseData(srv, backup)
					synctest.Wait() // a heartbeat was perhaps answered just before
					trustedUntil := e.TrustedUntil()
					endedAt, cause := bubble.Ended(t, e)
					require.ErrorIs(t, cause, zkutil.ErrSessionLost)
					require.False(t, endedAt.After(trustedUntil))
					// The waiter saw nothing that the backup lacks, and may keep its session.
					bubble.Eventually(t, backIn, func() bool { return isBack(holder, old) && isBack(waiter, 0) })

					got := <-turn
					require.NoError(t, got.Err)
					require.LessOrEqual(t, got.At.Sub(start), backIn+timeout, "an old znode may be ahead until its session ends")
					require.NoError(t, got.Lease.Leave())
					require.NoError(t, bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire).Leave())
					bubble.Eventually(t, backIn, func() bool { return len(srv.Children("/m")) == 0 })
				})
			})
		}
	}
}
