package recipes_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// place is an ensemble of three servers with a client that tracks it, knows only the first server, and holds a lock.
type place struct {
	*zktest.Server
	t      *testing.T
	a      []string // addresses
	client *recipes.Client
	lease  *recipes.Lease
	log    records
	epoch  int
}

func tracked(t *testing.T, test func(p *place), opts ...recipes.Option) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		p := &place{Server: zktest.NewServer(t, zktest.WithServers(5)), t: t}
		p.a = p.Addrs()[:3] // the others keep the quorum while the test stops some
		all := append([]recipes.Option{
			recipes.WithDialer(p.dial), recipes.WithSessionTimeout(6 * time.Second), recipes.WithEnsembleTracking(), recordsIn(&p.log),
		}, opts...)
		client, err := recipes.Connect(t.Context(), p.a[:1], all...)
		require.NoError(t, err)
		p.client, p.lease = client, acquireAt(t, client, "/lock")
		test(p)
		require.NoError(t, context.Cause(p.lease.Context()), "the lease stands")
		require.NoError(t, p.lease.Release())
		require.NoError(t, client.Close())
		p.RequireIdle(t)
	})
}

// dial reaches the servers of the ensemble. Addresses of another network are silent.
func (p *place) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if strings.HasPrefix(address, "10.") {
		time.Sleep(timeout) //nolint:forbidigo // virtual time
		return nil, os.ErrDeadlineExceeded
	}
	return p.Dialer()(network, address, timeout)
}

// configure sets the configuration, as reconfig does.
func (p *place) configure(servers ...string) {
	p.epoch++
	p.configureAt(p.epoch, servers...)
}

func (p *place) configureAt(version int, servers ...string) {
	var b strings.Builder
	for i, server := range servers {
		fmt.Fprintf(&b, "server.%d=zk%d:2888:3888:participant;%s\n", i+1, i+1, server)
	}
	fmt.Fprintf(&b, "version=%x", version)
	p.set(b.String())
}

func (p *place) set(config string) {
	p.Put("/zookeeper/config", []byte(config))
	time.Sleep(time.Second) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func (p *place) connectedTo() string { return p.client.Health().Server }

// recordsOf returns the number of records with a text.
func (p *place) recordsOf(text string) int {
	synctest.Wait()
	return strings.Count(p.log.String(), text)
}

// The client uses a new server (CURATOR-266), without an early reconnect.
func TestTrackingUsesServersThatJoin(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.Equal(p.t, 1, p.recordsOf(`msg="ensemble changed"`))
		require.Zero(p.t, p.recordsOf("msg=suspended"))
		p.Stop(p.a[0])
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		require.Contains(p.t, p.a[1:], p.connectedTo())
		require.Equal(p.t, recipes.Connected, p.client.State())
		// The list outlives the session (CURATOR-551), and so does the chroot (CURATOR-593).
		require.NoError(p.t, p.lease.Release())
		p.Expire(p.client.Conn().SessionID())
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		p.Stop(p.connectedTo())
		p.lease = acquireAt(p.t, p.client, "/lock")
		require.Contains(p.t, p.lease.Path(), "/app/lock/")
	}, recipes.WithNamespace("app"))
}

// A server that leaves is left for another, and not tried again.
func TestTrackingLeavesServersThatLeave(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		session := p.client.Conn().SessionID()
		p.configure(p.a[1:]...)
		require.Contains(p.t, p.a[1:], p.connectedTo())
		require.Equal(p.t, session, p.client.Conn().SessionID())
		require.Equal(p.t, 1, p.recordsOf(`msg="leaving a server that is no longer in the ensemble"`))
		requests := p.Observe()
		defer requests.Stop()
		for range 10 {
			p.Disconnect()
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
		}
		p.Stop(p.a[1:]...)
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		for _, r := range requests.Requests(zktest.OpConnect) {
			require.NotEqual(p.t, p.a[0], r.Server)
		}
		require.NoError(p.t, p.Restart(p.a[1:]...))
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, recipes.Connected, p.client.State())
	})
}

// While no member is reachable, the client stays connected to its server. CURATOR-384, -392 and -578 had addresses that are
// unreachable from the client.
func TestTrackingStaysWhileNoMemberCanBeReached(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		p.Stop(p.a[1:]...)
		p.configure(p.a[1:]...)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.Zero(p.t, p.recordsOf("msg=suspended"))
		require.Equal(p.t, 1, p.recordsOf(`level=WARN msg="server is no longer in the ensemble, and no member is reachable"`))
		require.NoError(p.t, p.Restart(p.a[2]))
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[2], p.connectedTo())
	})
}

// The servers given to Connect are the last resort, unless only they answered.
func TestTrackingFallsBackToTheConfiguredServers(t *testing.T) {
	tracked(t, func(p *place) {
		p.Stop(p.a[1:]...)
		p.configure(p.a[1:]...)
		p.Disconnect()
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.NoError(p.t, p.Restart(p.a[1:]...))
		p.Stop(p.a[0])
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.Contains(p.t, p.a[1:], p.connectedTo())
		require.NoError(p.t, p.Restart(p.a[0]))
		for range 10 {
			p.Stop(p.connectedTo())
			time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
			require.Contains(p.t, p.a[1:], p.connectedTo(), "members come first")
			require.NoError(p.t, p.Restart(p.a[1:]...))
		}
	})
}

// Members with unreachable addresses cost no lease, for any number of cut connections and of silences of the server.
func TestTrackingOfMembersThatLeadNowhere(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure("10.7.7.0:2181", "10.7.7.1:2181", "10.7.7.2:2181", "10.7.7.3:2181", "10.7.7.4:2181")
		require.Equal(p.t, 1, p.recordsOf(`msg="ensemble changed"`))
		for range 20 {
			p.Disconnect()
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			require.Equal(p.t, recipes.Connected, p.client.State())
		}
	})
}

// A configuration of version 0 is one server's zoo.cfg. Servers that name each other differently are no change of the ensemble.
func TestTrackingOfConfigurationsWithoutReconfiguration(t *testing.T) {
	tracked(t, func(p *place) {
		p.configureAt(0, p.a[1:]...)
		for range 20 {
			p.configureAt(0, p.a[2], "zk9:2181")
			p.configureAt(0, p.a[1], "zk7:2181")
		}
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.Zero(p.t, p.recordsOf("msg=suspended"))
		require.Equal(p.t, 3, p.recordsOf(`msg="ensemble changed"`), "one for each new server")
		p.Stop(p.a[0])
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
		require.Contains(p.t, p.a[1:], p.connectedTo(), "its servers are used")

		p.configureAt(1, p.a[1:]...)
		p.configureAt(0, "zk8:2181")
		require.Equal(p.t, 4, p.recordsOf(`msg="ensemble changed"`), "older than what the ensemble agreed on")
		require.NoError(p.t, p.Restart(p.a[0]))
	})
}

// Servers that show different configurations again and again are left once per session timeout.
func TestTrackingLeavesOncePerSessionTimeout(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		const rounds = 30
		for range rounds {
			for _, server := range p.a {
				p.configure(server)
			}
		}
		left := p.recordsOf(`msg="leaving a server that is no longer in the ensemble"`)
		require.Positive(p.t, left)
		require.LessOrEqual(p.t, left, 1+rounds*3/6, "a round takes 3 s, T is 6 s")
	})
}

// What can't be used is said once, and changes nothing.
func TestTrackingIgnoresWhatItCantUse(t *testing.T) {
	tracked(t, func(p *place) {
		require.Equal(p.t, 1, p.recordsOf(`level=WARN msg="ensemble not tracked" err="the configuration has the client addresses of 0 of 0 servers`), "a standalone server")
		p.set("server.1=zk1:2888:3888:participant\nserver.2=zk2:2888:3888:participant;" + p.a[1] + "\nversion=1") // CURATOR-402, -526
		require.Equal(p.t, 1, p.recordsOf("client addresses of 1 of 2 servers"))
		p.Disconnect()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, 1, p.recordsOf("client addresses of 1 of 2 servers"), "said once")
		p.set("server.1=zk1:2888:3888:participant;zk1:none\nversion=1")
		require.Equal(p.t, 1, p.recordsOf("not the configuration of an ensemble"))
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.Zero(p.t, p.recordsOf(`msg="ensemble changed"`))
		p.configure(p.a...)
		require.Equal(p.t, 1, p.recordsOf(`msg="ensemble changed"`))
	})
	for refusal, want := range map[zktest.Refusal]string{
		zktest.RefuseNoAuth: "no permission to read /zookeeper/config",
		zktest.RefuseNoNode: "the servers have no /zookeeper/config, which needs ZooKeeper 3.5",
	} {
		tracked(t, func(p *place) {
			remove := p.Inject(func(r zktest.Request) (f zktest.Fault) {
				if r.Path == "/zookeeper/config" {
					f.Refusal = refusal
				}
				return f
			})
			for range 5 {
				p.Disconnect()
				time.Sleep(time.Second) //nolint:forbidigo // virtual time
			}
			require.Equal(p.t, 1, p.recordsOf(want))
			remove()
			p.Disconnect()
			p.configure(p.a...)
			require.Equal(p.t, 1, p.recordsOf(`msg="ensemble changed"`))
		})
	}
}

// An older configuration is a lagging server's. The same servers in another order change nothing (CURATOR-570).
func TestTrackingOfOldAndEqualConfigurations(t *testing.T) {
	tracked(t, func(p *place) {
		p.configureAt(7, p.a...)
		p.configureAt(6, p.a[1:]...)
		p.configureAt(8, p.a[2], p.a[1], p.a[0])
		require.Equal(p.t, 1, p.recordsOf(`msg="ensemble changed"`))
		require.Zero(p.t, p.recordsOf("msg=suspended"))
		p.configureAt(9, p.a[1:]...)
		require.Contains(p.t, p.a[1:], p.connectedTo())
	})
}

// Servers come and go all the time, under faults, and the lease stands.
func TestTrackingThroughRollingReplacement(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		for round := range 12 {
			gone := p.a[round%3]
			var rest []string
			for _, server := range p.a {
				if server != gone {
					rest = append(rest, server)
				}
			}
			p.configure(rest...)
			p.Stop(gone)
			time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
			require.Contains(p.t, rest, p.connectedTo())
			require.NoError(p.t, p.Restart(gone))
			p.configure(p.a...)
		}
	})
}
