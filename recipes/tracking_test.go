package recipes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// place is an ensemble of three servers with a client that tracks it, which knows the first alone, and holds a lock.
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
		p := &place{Server: zktest.NewServer(t, zktest.WithServers(3)), t: t}
		p.a = p.Addrs()
		all := append([]recipes.Option{
			recipes.WithDialer(p.Dialer()), recipes.WithSessionTimeout(6 * time.Second), recipes.WithEnsembleTracking(), recordsIn(&p.log),
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

// A server that joins is used (CURATOR-266), without a reconnect before that is due.
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
		require.Equal(p.t, 1, p.recordsOf(`msg="leaving a server that has left the ensemble"`))
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

// While no member can be reached, the client stays where it is. CURATOR-384, -392 and -578: addresses that lead nowhere from here.
func TestTrackingStaysWhileNoMemberCanBeReached(t *testing.T) {
	tracked(t, func(p *place) {
		p.configure(p.a...)
		p.Stop(p.a[1:]...)
		p.configure(p.a[1:]...)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.Zero(p.t, p.recordsOf("msg=suspended"))
		require.Equal(p.t, 1, p.recordsOf(`level=WARN msg="the server has left the ensemble, and no member can be reached"`))
		require.NoError(p.t, p.Restart(p.a[2]))
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[2], p.connectedTo())
	})
}

// The servers given to Connect are the last resort.
func TestTrackingFallsBackToTheConfiguredServers(t *testing.T) {
	tracked(t, func(p *place) {
		p.Stop(p.a[1:]...)
		p.configure(p.a[1:]...)
		p.Disconnect()
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(p.t, p.a[0], p.connectedTo())
		require.NoError(p.t, p.Restart(p.a[1:]...))
		p.Disconnect()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.Contains(p.t, p.a[1:], p.connectedTo(), "members come first")
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
		zktest.RefuseNoNode: "the servers have no /zookeeper/config, which comes with ZooKeeper 3.5",
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

func TestTrackingRefusesBadInput(t *testing.T) {
	_, err := recipes.Connect(t.Context(), []string{"localhost"}, recipes.WithEnsembleTracking(), recipes.WithHostProvider(zk.NewDNSHostProvider()))
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	require.ErrorContains(t, err, "both choose the servers, give one of them")
	_, err = recipes.NewClient(new(zk.Conn), make(chan zk.Event), recipes.WithEnsembleTracking())
	require.ErrorContains(t, err, "WithEnsembleTracking: only for Connect")
}
