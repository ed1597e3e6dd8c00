package recipes_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// principals is a mechanism that knows the principals of some hosts alone, as Kerberos does.
type principals struct {
	recipes.SASLMechanism

	hosts []string
}

func (p principals) Begin(ctx context.Context, server string) (recipes.SASLLogin, error) {
	host, _, _ := net.SplitHostPort(server)
	if slices.Contains(p.hosts, host) {
		return p.SASLMechanism.Begin(ctx, server)
	}
	return nil, fmt.Errorf("%w: the KDC knows no zookeeper/%s", recipes.ErrLoginRefused, host)
}

// A certificate or a principal is for a name. The name given to Connect stays a server to try, though the ensemble's configuration has the
// address.
func TestTrackingKeepsTheNamesGivenToConnect(t *testing.T) {
	authority := newAuthority()
	der, key := authority.issue("localhost", 3, time.Now().Add(time.Hour))
	certificate := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	for name, place := range map[string]struct {
		server zktest.Option
		client recipes.Option
		port   string // in the configuration
	}{
		"TLS": {
			zktest.WithTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
			recipes.WithTLS(&tls.Config{RootCAs: authority.pool}), "1;%s:%s",
		},
		"Kerberos": {
			zktest.WithSASL(map[string]string{"ann": "secret"}),
			recipes.WithSASL(principals{recipes.DigestMD5("ann", "secret"), []string{"localhost"}}), "%s:%s",
		},
	} {
		for _, host := range []string{"127.0.0.1", "localhost", "127.0.0.8"} {
			t.Run(name+"/"+host, func(t *testing.T) {
				server := zktest.NewServer(t, place.server)
				_, port, err := net.SplitHostPort(server.Addr())
				require.NoError(t, err)
				server.Put("/zookeeper/config", fmt.Appendf(nil, "server.1=zk1:2888:3888:participant;"+place.port+"\nversion=100000001", host, port))
				client, err := recipes.Connect(t.Context(), []string{"localhost:" + port}, place.client,
					recipes.WithEnsembleTracking(), recipes.WithConnectTimeout(testkit.Patience))
				require.NoError(t, err)
				defer func() { require.NoError(t, client.Close()) }()
				lease := acquireAt(t, client, "/lock")
				states, stop := client.Subscribe()
				defer stop()
				for range 5 {
					server.Disconnect()
					for state := range states {
						if state == recipes.Reconnected {
							break
						}
					}
				}
				require.NoError(t, context.Cause(lease.Context()))
				require.NoError(t, lease.Release())
			})
		}
	}
}

// Two names of one address are two servers where logins go by name.
func TestTwoNamesOfOneAddress(t *testing.T) {
	server := zktest.NewServer(t, zktest.WithSASL(map[string]string{"ann": "secret"}), zktest.WithSASLRequired())
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	for i := range 6 {
		servers := []string{"localhost:" + port, "127.0.0.1:" + port}
		if i%2 > 0 {
			servers[0], servers[1] = servers[1], servers[0]
		}
		client, err := recipes.Connect(t.Context(), servers,
			recipes.WithSASL(principals{recipes.DigestMD5("ann", "secret"), []string{"localhost"}}), recipes.WithConnectTimeout(testkit.Patience))
		require.NoError(t, err)
		require.NoError(t, client.Close())
	}
}
