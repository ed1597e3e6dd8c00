package session_test

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// timeout is the session timeout in the tests of servers that have forgotten something.
const timeout = 6 * time.Second

// backIn is when a client has a new session at the latest after servers have forgotten its session: the
// timeout, for which all servers have to refuse it, and two rounds of attempts.
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
const forgotten = "emptied or restored"

// work is a hundred transactions, so that what a client sees next is far ahead of new servers.
func work(srv *fixture.Ensemble) {
	for range 100 {
		srv.Put("/work", nil)
	}
}

// isBack reports whether a client is connected with another session than an old one.
func isBack(s *session.Session, old int64) bool {
	return s.State() == session.Connected && s.IsConnected() && fixture.SessionID(s) != 0 && fixture.SessionID(s) != old
}

func TestNewSessionAfterServersWereEmptied(t *testing.T) {
	for name, servers := range map[string]int{"one server": 1, "two servers": 2} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv, srv.Addrs()[:servers]...)
				holder, waiter := fixture.Connect(t, cfg), fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
				work(srv)
				e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(waiter, "/m"))
				fixture.Settle()
				ids := []int64{fixture.SessionID(holder), fixture.SessionID(waiter)}
				token := e.Token()

				start := time.Now()
				srv.Wipe()
				synctest.Wait() // a heartbeat may have been answered just before
				trustedUntil := e.TrustedUntil()
				endedAt, cause := fixture.Ended(t, e)
				require.ErrorIs(t, cause, zkutil.ErrSessionLost)
				require.False(t, endedAt.After(trustedUntil))
				fixture.Eventually(t, backIn, func() bool { return isBack(holder, ids[0]) && isBack(waiter, ids[1]) })
				require.GreaterOrEqual(t, time.Since(start), timeout)

				got := <-turn
				require.NoError(t, got.Err)
				require.Less(t, got.Entry.Token(), token, "tokens begin again")
				require.Len(t, srv.Sessions(), 2, "nobody leaves a session behind")
				lines := warnings(log)
				require.Len(t, lines, 1)
				require.Contains(t, lines[0], "level=WARN")
				require.NoError(t, got.Entry.Leave())
				require.NoError(t, fixture.Acquire(t, fixture.MutexOn(holder, "/m")).Leave())
				srv.Disconnect() // the next handshake names what the new session has seen
				fixture.Eventually(t, time.Second, func() bool { return holder.IsConnected() && waiter.IsConnected() })
				require.Len(t, srv.Sessions(), 2)
			})
		})
	}
}

// The backup has the session and a znode of it, which was a hold at that time. Nobody takes it for one again.
func TestNewSessionBesideTheOldOneOfABackup(t *testing.T) {
	for name, isReleased := range map[string]bool{"held until the restore": false, "released before": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv)
				s := fixture.Connect(t, cfg)
				lock := fixture.MutexOn(s, "/m")
				e := fixture.Acquire(t, lock)
				old, znodes := fixture.SessionID(s), srv.Children("/m")
				backup := srv.Backup()
				work(srv)
				fixture.Pass(2 * time.Second) // heartbeats, which the backup lacks
				if isReleased {
					require.NoError(t, e.Leave())
				}

				restored := time.Now()
				srv.Restore(backup)
				_, cause := fixture.Ended(t, e)
				require.Equal(t, isReleased, errors.Is(cause, zkutil.ErrReleased))
				require.Equal(t, znodes, srv.Children("/m"))
				turn := fixture.AcquireLater(t.Context(), lock)
				fixture.Eventually(t, backIn, func() bool { return isBack(s, old) })
				got := <-turn
				require.NoError(t, got.Err)
				require.GreaterOrEqual(t, got.At.Sub(restored), timeout, "the old znode is ahead until its session ends")
				require.LessOrEqual(t, got.At.Sub(restored), backIn)
				require.NotEqual(t, e.Path(), got.Entry.Path())
				require.Len(t, srv.Children("/m"), 1)
				require.Len(t, warnings(log), 1)
				require.NoError(t, got.Entry.Leave())
				fixture.Eventually(t, time.Second, func() bool { return !srv.Alive(old) })
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
		require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave()) // whose answers show it the last zxid
		fixture.Pass(timeout)
		srv.Wipe()
		fixture.Eventually(t, backIn, func() bool { return isBack(s, old) })
		require.Len(t, warnings(log), 1)
	})
}

// lag makes a server refuse the handshakes of sessions, as a follower that has not seen what they have seen. It takes new
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
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		id := fixture.SessionID(s)
		sessions := srv.Log.Requests(zktest.OpClose)
		end := lag(srv, srv.A)
		for range 20 {
			srv.Disconnect()
			fixture.Pass(timeout / 4)
		}
		end()
		fixture.Pass(time.Second)
		require.NoError(t, e.Context().Err())
		require.Equal(t, id, fixture.SessionID(s))
		require.Equal(t, sessions, srv.Log.Requests(zktest.OpClose), "nobody has asked for another session")
		require.Empty(t, log.Take())
		require.NoError(t, e.Leave())
	})
}

// All servers refuse the session, and take a new one: but their transactions go on from what the client has seen.
func TestServersThatLagForLongAreAwaited(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, log := logged(srv, srv.A, srv.B)
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		srv.Disconnect()
		end := lag(srv)
		fixture.Pass(timeout + timeout/2)
		require.Empty(t, warnings(log))
		require.Empty(t, srv.Sessions(), "the old one has expired, and none was left")
		end()
		fixture.Eventually(t, 2*time.Second, func() bool { return isBack(s, id) })
		require.Empty(t, warnings(log), "a server has said that it has ended the session")
	})
}

// A quorum that is away refuses everybody, and keeps the session.
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
			fixture.Pass(timeout)
			srv.ElectLeader()
		}
		fixture.Pass(timeout - time.Second/2)
		end()
		fixture.Eventually(t, 3*time.Second, func() bool { return s.IsConnected() })
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
		fixture.Pass(time.Second)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		isBroken = true
		id := fixture.SessionID(s)
		for range 10 {
			srv.Disconnect()
			fixture.Pass(timeout / 2)
		}
		require.NoError(t, e.Context().Err())
		require.Equal(t, id, fixture.SessionID(s))
		require.Empty(t, log.Take())
		require.Empty(t, alone.Sessions())
		require.NoError(t, e.Leave())
	})
}

// An adopted connection can't come back. Its owner is told once.
func TestAdoptedConnectionToldOfForgetfulServers(t *testing.T) {
	for name, known := range map[string]time.Duration{"timeout known": timeout, "timeout unknown": 0} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv)
				conn, events, err := zk.Connect(cfg.Servers, timeout, zk.WithDialer(srv.Dial), zk.WithLogInfo(false), zk.WithLogger(testkit.Quiet{}))
				require.NoError(t, err)
				defer conn.Close()
				cfg.SessionTimeout, cfg.Dialer = known, nil
				s := session.Adopt(conn, events, cfg)
				defer func() { _ = s.Close() }()
				work(srv)
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				srv.Stop() // which refuses connections, and is no sign
				fixture.Pass(10 * timeout)
				_, cause := fixture.Ended(t, e)
				require.Error(t, cause)
				require.Empty(t, warnings(log))

				srv.Wipe()
				srv.Restart()
				srv.Wipe() // the start has begun an epoch
				limit := known
				if known == 0 {
					limit = time.Minute
				}
				fixture.Pass(limit - 2*time.Second)
				require.Empty(t, warnings(log))
				fixture.Pass(10 * limit)
				require.Len(t, warnings(log), 1)
				require.False(t, s.IsConnected())
			})
		})
	}
}

// Servers without a quorum are probed a few times within a timeout, whether they hang up on probes or are silent.
func TestProbesAreFew(t *testing.T) {
	for name, lost := range map[string]zktest.Loss{"hang up": zktest.RequestLost, "silent": zktest.NoAnswer} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg, log := logged(srv, srv.A, srv.B)
				s := fixture.Connect(t, cfg)
				require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave())
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
				fixture.Pass(11 * timeout)
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
					fixture.Eventually(t, timeout, func() bool { return srv.Open() == 1 && strings.Contains(lastOf(all), "a new session") })
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
		require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave())
		old := fixture.SessionID(s)
		srv.Wipe()
		srv.DropRequest(zktest.OpClose, 1)
		fixture.Eventually(t, backIn+timeout/3, func() bool { return isBack(s, old) })
		require.Len(t, warnings(log), 1)
		fixture.Eventually(t, timeout/3, func() bool { return len(srv.Sessions()) == 1 })
	})
}

// On every kind of server, clients come back to servers that were emptied, or that have an old backup, and the lock goes on. The holder
// does not outlast its trust.
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
					e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
					turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(waiter, "/m"))
					fixture.Settle()
					backup := srv.Backup()
					work(srv)
					fixture.Pass(2 * time.Second) // heartbeats, which the backup lacks
					old := fixture.SessionID(holder)

					start := time.Now()
					loseData(srv, backup)
					synctest.Wait() // a heartbeat may have been answered just before
					trustedUntil := e.TrustedUntil()
					endedAt, cause := fixture.Ended(t, e)
					require.ErrorIs(t, cause, zkutil.ErrSessionLost)
					require.False(t, endedAt.After(trustedUntil))
					// The waiter has seen nothing that the backup lacks, and may keep its session.
					fixture.Eventually(t, backIn, func() bool { return isBack(holder, old) && isBack(waiter, 0) })

					got := <-turn
					require.NoError(t, got.Err)
					require.LessOrEqual(t, got.At.Sub(start), backIn+timeout, "an old znode may be ahead until its session ends")
					require.NoError(t, got.Entry.Leave())
					require.NoError(t, fixture.Acquire(t, fixture.MutexOn(holder, "/m")).Leave())
					fixture.Eventually(t, backIn, func() bool { return len(srv.Children("/m")) == 0 })
				})
			})
		}
	}
}
