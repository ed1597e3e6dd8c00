package session_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"testing"
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

// One server of three is frozen, and all of them have one address. The client asks for another name.
func TestHoldOutlivesFrozenServerBehindOneAddress(t *testing.T) {
	const timeout = 6 * time.Second
	for _, where := range []string{"behind the handshake of TLS", "before it"} {
		t.Run(where, func(t *testing.T) {
			phases := testkit.Shorter(20, 2)
			for phase := range phases {
				testkit.Bubble(t, func(t *testing.T) {
					site := newSite(t)
					cfg := site.config(timeout)
					cfg.TLS = site.putBehindRouter()
					s := fixture.Connect(t, cfg)
					e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
					bubble.Pass(timeout/6*time.Duration(phase)/time.Duration(phases) + time.Millisecond)
					frozen := site.latest()
					server := site.routed[frozen]
					site.Freeze(server)
					if where == "before it" {
						site.freezeRoute(frozen)
					}
					bubble.Pass(3 * timeout)
					require.NoError(t, e.Context().Err(), "phase %d", phase)
					require.NotEqual(t, frozen, site.latest())
					require.Equal(t, site.latest()+"/10.0.0.9:2181", s.Health().Server)
					require.NoError(t, e.Leave())
				})
			}
		})
	}
}

// One certificate of three expired, and all servers have one address.
func TestConnectPastExpiredCertificateBehindOneAddress(t *testing.T) {
	for range testkit.Shorter(50, 5) {
		testkit.Bubble(t, func(t *testing.T) {
			site := newSite(t)
			cfg := site.config(6 * time.Second)
			cfg.TLS = site.putBehindRouter()
			site.certs["zk2"] = selfSigned(t, "zk2", -time.Hour)
			cfg.TLS.RootCAs.AddCert(site.certs["zk2"].Leaf)
			start := time.Now()
			s := fixture.Connect(t, cfg)
			require.Less(t, time.Since(start), 100*time.Millisecond, "%v", site.dialledSince(0))
			require.NotEqual(t, "zk2", site.latest())
			require.NoError(t, s.Close())
		})
	}
}

// All certificates behind one address expired. Connect does not wait for its context.
func TestConnectFailsWhenEveryNameBehindOneAddressRefuses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		cfg := site.config(6 * time.Second)
		cfg.TLS = site.putBehindRouter()
		for _, name := range names {
			site.certs[name] = selfSigned(t, name, -time.Hour)
			cfg.TLS.RootCAs.AddCert(site.certs[name].Leaf)
		}
		start := time.Now()
		_, err := session.Connect(t.Context(), cfg)
		require.ErrorContains(t, err, "/10.0.0.9:2181: ")
		require.ErrorContains(t, err, "certificate has expired")
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// Names without an answering server cost no time if another one is known.
func TestConnectWithSilentNames(t *testing.T) {
	for name, test := range map[string]struct {
		servers []string
		silent  []string
	}{
		"one name":             {servers: siteServers[:1]},
		"two of three silent":  {silent: []string{"zk2", "zk3"}},
		"an address and names": {servers: []string{"10.0.0.1:2181", "zk2:2181", "zk3:2181"}, silent: []string{"zk2", "zk3"}},
	} {
		t.Run(name, func(t *testing.T) {
			for range testkit.Shorter(20, 2) {
				testkit.Bubble(t, func(t *testing.T) {
					site := newSite(t)
					site.silence(test.silent...)
					if test.silent == nil {
						clear(site.silent)
					}
					start := time.Now()
					s, err := session.Connect(t.Context(), site.config(30*time.Second, test.servers...))
					took := time.Since(start)
					require.NoError(t, err)
					require.NoError(t, s.Close())
					require.Less(t, took, 10*time.Millisecond)
					require.Less(t, time.Since(start), 100*time.Millisecond, "Close does not wait for a lookup")
				})
			}
		})
	}
}

// The context of Connect bounds the lookups too, and the error says what it waited for.
func TestConnectContextBoundsLookups(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		site.silence()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := session.Connect(ctx, site.config(30*time.Second))
		require.Equal(t, time.Second, time.Since(start).Truncate(10*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var lookup *net.DNSError
		require.ErrorAs(t, err, &lookup)
		require.Contains(t, names, lookup.Name)
		require.ErrorContains(t, err, "no answer")
		running, _ := site.lookupsRunning()
		require.Empty(t, running, "no lookup outlives Connect")
	})
}

// A name server that falls silent costs nothing, because the addresses that it gave before still count.
func TestReconnectWhileNameServerIsSilent(t *testing.T) {
	const timeout = 6 * time.Second
	for name, silent := range map[string][]string{"one name": {"zk2"}, "all names": nil} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				site := newSite(t)
				s := fixture.Connect(t, site.config(timeout))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				site.silence(silent...)
				for range 20 {
					start := time.Now()
					site.Disconnect()
					bubble.Eventually(t, timeout, func() bool { return s.State() == connstate.Connected && s.IsConnected() })
					require.Less(t, time.Since(start), timeout/60, "T/6 is what a silent name took")
					bubble.Pass(timeout / 3)
				}
				require.NoError(t, e.Context().Err())
				require.NoError(t, e.Leave())
				_, peak := site.lookupsRunning()
				require.Equal(t, 1, peak, "lookups of one name at a time")
			})
		})
	}
}

// Close does not wait for the name server, and neither does a caller of State meanwhile.
func TestCloseWhileNameServerIsSilent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		s, err := session.Connect(t.Context(), site.config(30*time.Second))
		require.NoError(t, err)
		site.silence()
		site.Stop()
		bubble.Pass(2500 * time.Millisecond)
		start := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(start), 1100*time.Millisecond, "zk.Conn pauses for a second between rounds")
		running, _ := site.lookupsRunning()
		require.Empty(t, running)
	})
}

// A lookup that ignores its context is foreign code: it delays Close for a limited time, no second one of its name is begun
// meanwhile, and Close called again waits for it.
func TestLookupThatIgnoresItsContext(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		site.stubborn = make(chan struct{})
		s, err := session.Connect(t.Context(), site.config(timeout))
		require.NoError(t, err)
		site.silence()
		for range 100 {
			site.Disconnect()
			bubble.Pass(timeout)
		}
		require.True(t, s.IsConnected())
		running, peak := site.lookupsRunning()
		require.Equal(t, map[string]int{"zk1": 1, "zk2": 1, "zk3": 1}, running)
		require.Equal(t, 1, peak)
		start := time.Now()
		require.ErrorContains(t, s.Close(), "lookup")
		require.Less(t, time.Since(start), timeout/6+time.Second)
		close(site.stubborn)
		require.NoError(t, s.Close())
	})
}

// A rebuilt ensemble has other addresses. Packets to the old ones are lost, so each of them would cost T/6.
func TestMovedServersAreFoundAgain(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		s := fixture.Connect(t, site.config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		for i := range 20 {
			site.move(net.IPv4(10, 1, byte(i), 1).String(), net.IPv4(10, 1, byte(i), 2).String(), "fd00::"+string(rune('1'+i%9)))
			start := time.Now()
			site.Disconnect()
			bubble.Eventually(t, timeout, func() bool { return s.IsConnected() })
			require.Less(t, time.Since(start), timeout/60)
			bubble.Pass(timeout / 3)
		}
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}

// A name that the name server lacks for a while keeps its addresses.
func TestNameThatResolvesToNothingForAWhile(t *testing.T) {
	const timeout = 6 * time.Second
	for name, vanish := range map[string]func(*site){
		"no such host": (*site).dropRecords,
		"no addresses": func(s *site) {
			for _, name := range names {
				s.setRecord(name)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				site := newSite(t)
				s := fixture.Connect(t, site.config(timeout))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				vanish(site)
				for range 5 {
					site.Disconnect()
					bubble.Pass(timeout / 3)
					require.True(t, s.IsConnected())
				}
				require.NoError(t, e.Leave())
			})
			testkit.Bubble(t, func(t *testing.T) { // and a new one is found when it appears
				site := newSite(t)
				vanish(site)
				time.AfterFunc(5*time.Second, func() { site.setRecord("zk3", "10.0.0.3") })
				start := time.Now()
				s, err := session.Connect(t.Context(), site.config(timeout))
				require.NoError(t, err)
				require.Less(t, time.Since(start), 7100*time.Millisecond, "two rounds, a second apart, after it has come")
				require.NoError(t, s.Close())
			})
		})
	}
}

// The reason why a name has no address is the reason why Connect failed.
func TestConnectTellsWhyANameIsUnknown(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := session.Connect(ctx, site.config(6*time.Second, "zk9:2181"))
		var lookup *net.DNSError
		require.ErrorAs(t, err, &lookup)
		require.True(t, lookup.IsNotFound)
		require.Equal(t, "zk9", lookup.Name)
		require.False(t, zkutil.IsAny(err, zkutil.ErrUnavailable))
	})
}

// Without TLS nothing distinguishes two names at one address. They are one server, which is tried once in a round.
func TestNamesOfOneServerAreTriedOnce(t *testing.T) {
	const timeout = 6 * time.Second
	for range testkit.Shorter(20, 2) {
		testkit.Bubble(t, func(t *testing.T) {
			site := newSite(t)
			site.setRecord("alias", "10.0.0.1", "10.0.0.1")
			s := fixture.Connect(t, site.config(timeout, "zk1:2181", "10.0.0.1:2181", "alias:2181", "zk2:2181"))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			bubble.Pass(time.Second)
			n := len(site.dialledSince(0))
			site.Freeze(site.Addrs()[0])
			site.Disconnect()
			bubble.Eventually(t, timeout, func() bool { return s.IsConnected() })
			require.LessOrEqual(t, len(site.dialledSince(n)), 2, "%v", site.dialledSince(n))
			bubble.Pass(timeout)
			require.NoError(t, e.Leave())
		})
	}
}

// A panic in the user's dialer is an error of the attempt, and a record with the stack. It does not end the program.
func TestPanicWhileConnecting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var log bytes.Buffer
		cfg := srv.Config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
		cfg.Dialer = func(string, string, time.Duration) (net.Conn, error) { panic("oh") }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := session.Connect(ctx, cfg)
		require.ErrorContains(t, err, "panic: oh")
		require.Contains(t, log.String(), "panic in a callback")
		require.Contains(t, log.String(), "names_test.go", "the stack")
	})
}

// Silence counts by the name, too. A server that answers slowly has all its time, even if another is silent at the same
// address.
func TestSilentServerDoesNotHurryOthersBehindOneAddress(t *testing.T) {
	const timeout = 6 * time.Second
	for range testkit.Shorter(10, 1) {
		testkit.Bubble(t, func(t *testing.T) {
			site := newSite(t)
			cfg := site.config(timeout)
			cfg.TLS = site.putBehindRouter()
			s := fixture.Connect(t, cfg)
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			bubble.Pass(time.Second)
			site.Freeze(site.routed[site.latest()])
			site.Delay(zktest.OpConnect, timeout/10)
			bubble.Pass(3 * timeout)
			require.NoError(t, e.Context().Err())
			require.True(t, s.IsConnected())
			require.NoError(t, e.Leave())
		})
	}
}
