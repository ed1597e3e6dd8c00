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
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// One server of three is frozen, and all of them have one address: the client asks for another name.
func TestHoldOutlivesFrozenServerBehindOneAddress(t *testing.T) {
	const timeout = 6 * time.Second
	for _, where := range []string{"behind the handshake of TLS", "before it"} {
		t.Run(where, func(t *testing.T) {
			phases := fixture.Shorter(20)
			for phase := range phases {
				testkit.Bubble(t, func(t *testing.T) {
					site := newSite(t)
					cfg := site.config(timeout)
					cfg.TLS = site.putBehindRouter()
					s := fixture.Connect(t, cfg)
					e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
					fixture.Pass(timeout/6*time.Duration(phase)/time.Duration(phases) + time.Millisecond)
					frozen := site.latest()
					server := site.routed[frozen]
					site.Freeze(server)
					if where == "before it" {
						site.freezeRoute(frozen)
					}
					fixture.Pass(3 * timeout)
					require.NoError(t, e.Context().Err(), "phase %d", phase)
					require.NotEqual(t, frozen, site.latest())
					require.Equal(t, site.latest()+"/10.0.0.9:2181", s.Health().Server)
					require.NoError(t, e.Leave())
				})
			}
		})
	}
}

// One certificate of three has expired, and all servers have one address.
func TestConnectPastExpiredCertificateBehindOneAddress(t *testing.T) {
	for range fixture.Shorter(50) {
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

// All certificates behind one address have expired: Connect does not wait for its context.
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

// Names of which nobody answers cost no time where another one is known.
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
			for range fixture.Shorter(20) {
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

// The context of Connect bounds the lookups too, and the error tells what it waited for.
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

// A name server that falls silent takes nothing away: the addresses that it gave before still count.
func TestReconnectWhileNameServerIsSilent(t *testing.T) {
	const timeout = 6 * time.Second
	for name, silent := range map[string][]string{"one name": {"zk2"}, "all names": nil} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				site := newSite(t)
				s := fixture.Connect(t, site.config(timeout))
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				site.silence(silent...)
				for range 20 {
					start := time.Now()
					site.Disconnect()
					fixture.Eventually(t, timeout, func() bool { return s.State() == session.Connected && s.IsConnected() })
					require.Less(t, time.Since(start), timeout/60, "T/6 is what a silent name took")
					fixture.Pass(timeout / 3)
				}
				require.NoError(t, e.Context().Err())
				require.NoError(t, e.Leave())
				_, peak := site.lookupsRunning()
				require.Equal(t, 1, peak, "lookups of one name at a time")
			})
		})
	}
}

// Close does not wait for the name server, and neither does whoever asks for the state meanwhile.
func TestCloseWhileNameServerIsSilent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		site := newSite(t)
		s, err := session.Connect(t.Context(), site.config(30*time.Second))
		require.NoError(t, err)
		site.silence()
		site.Stop()
		fixture.Pass(2500 * time.Millisecond)
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
			fixture.Pass(timeout)
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
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		for i := range 20 {
			site.move(net.IPv4(10, 1, byte(i), 1).String(), net.IPv4(10, 1, byte(i), 2).String(), "fd00::"+string(rune('1'+i%9)))
			start := time.Now()
			site.Disconnect()
			fixture.Eventually(t, timeout, func() bool { return s.IsConnected() })
			require.Less(t, time.Since(start), timeout/60)
			fixture.Pass(timeout / 3)
		}
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}

// A name that is gone from the name server for a while keeps its addresses.
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
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				vanish(site)
				for range 5 {
					site.Disconnect()
					fixture.Pass(timeout / 3)
					require.True(t, s.IsConnected())
				}
				require.NoError(t, e.Leave())
			})
			testkit.Bubble(t, func(t *testing.T) { // and one that is new is found when it comes
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

// The reason why a name has no address is the reason why Connect has failed.
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

// Without TLS nothing tells two names at one address apart: they are one server, which is tried once in a round.
func TestNamesOfOneServerAreTriedOnce(t *testing.T) {
	const timeout = 6 * time.Second
	for range fixture.Shorter(20) {
		testkit.Bubble(t, func(t *testing.T) {
			site := newSite(t)
			site.setRecord("alias", "10.0.0.1", "10.0.0.1")
			s := fixture.Connect(t, site.config(timeout, "zk1:2181", "10.0.0.1:2181", "alias:2181", "zk2:2181"))
			e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
			fixture.Pass(time.Second)
			n := len(site.dialledSince(0))
			site.Freeze(site.Addrs()[0])
			site.Disconnect()
			fixture.Eventually(t, timeout, func() bool { return s.IsConnected() })
			require.LessOrEqual(t, len(site.dialledSince(n)), 2, "%v", site.dialledSince(n))
			fixture.Pass(timeout)
			require.NoError(t, e.Leave())
		})
	}
}

// silentInit is a user's host provider that asks a name server which is silent, as zk.DNSHostProvider does.
type silentInit struct {
	twoTries
	released chan struct{}
}

func (h *silentInit) Init(servers []string) error {
	<-h.released
	return h.twoTries.Init(servers)
}

// The context of Connect bounds Init of a host provider too.
func TestConnectContextBoundsInitOfAHostProvider(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		provider := &silentInit{released: make(chan struct{})}
		time.AfterFunc(time.Minute, func() { close(provider.released) })
		cfg := srv.Config(timeout)
		cfg.Hosts = provider
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := session.Connect(ctx, cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "host provider: Init")
		require.LessOrEqual(t, time.Since(start), time.Second+timeout/6, "Close waits for T/6")
		fixture.Pass(time.Minute)
	})
}

// panickingHosts is a user's host provider of which one method panics.
type panickingHosts struct {
	twoTries
	method string
}

func (h *panickingHosts) panicIn(method string) {
	if h.method == method {
		panic("oh")
	}
}

func (h *panickingHosts) Init(servers []string) error {
	h.panicIn("Init")
	return h.twoTries.Init(servers)
}

func (h *panickingHosts) Len() int {
	h.panicIn("Len")
	return h.twoTries.Len()
}

func (h *panickingHosts) Next() (string, bool) {
	h.panicIn("Next")
	return h.twoTries.Next()
}

func (h *panickingHosts) Connected() {
	h.panicIn("Connected")
	h.twoTries.Connected()
}

// A panic in the user's dialer or host provider is an error of the attempt, and a record with the stack. It does not end the
// program.
func TestPanicWhileConnecting(t *testing.T) {
	for method, isFatal := range map[string]bool{"Init": true, "Len": false, "Next": true, "Connected": false, "the dialer": true} {
		t.Run(method, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				var log bytes.Buffer
				cfg := srv.Config(6 * time.Second)
				cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
				cfg.Hosts = &panickingHosts{method: method}
				if method == "the dialer" {
					cfg.Dialer = func(string, string, time.Duration) (net.Conn, error) { panic("oh") }
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				s, err := session.Connect(ctx, cfg)
				if isFatal {
					require.ErrorContains(t, err, "panic: oh")
				} else {
					require.NoError(t, err)
					require.NoError(t, s.Close())
				}
				require.Contains(t, log.String(), "panic in a callback")
				require.Contains(t, log.String(), "names_test.go", "the stack")
			})
		})
	}
}

// Silence goes by the name, too: a server that answers slowly has all its time, whoever is silent at the same address.
func TestSilentServerDoesNotHurryOthersBehindOneAddress(t *testing.T) {
	const timeout = 6 * time.Second
	for range fixture.Shorter(10) {
		testkit.Bubble(t, func(t *testing.T) {
			site := newSite(t)
			cfg := site.config(timeout)
			cfg.TLS = site.putBehindRouter()
			s := fixture.Connect(t, cfg)
			e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
			fixture.Pass(time.Second)
			site.Freeze(site.routed[site.latest()])
			site.Delay(zktest.OpConnect, timeout/10)
			fixture.Pass(3 * timeout)
			require.NoError(t, e.Context().Err())
			require.True(t, s.IsConnected())
			require.NoError(t, e.Leave())
		})
	}
}
