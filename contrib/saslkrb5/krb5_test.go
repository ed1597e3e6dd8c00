//go:build unix

package saslkrb5_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

var annsAlone = zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: "ann@" + realm}

// A real ZooKeeper that demands Kerberos: with a keytab, a password and a credential cache. The lease outlives 20 reconnects, the later
// ones without a KDC, because the ticket still stands.
func TestLogins(t *testing.T) {
	w := newWorld(t)
	server := w.kdc.StartZooKeeper()
	w.kdc.Kinit("cache")
	for name, cfg := range map[string]saslkrb5.Config{
		"keytab":   {Principal: "ann@" + realm, KeytabFile: w.kdc.Path("ann.keytab")},
		"password": {Principal: "ann", Password: "secret"},
		"cache":    {CacheFile: w.kdc.Path("cache")},
	} {
		client, err := w.connect(server, w.mechanism(cfg), recipes.WithACL(annsAlone))
		require.NoError(t, err, name)
		lock, err := mutex.New(client, "/locks/"+name)
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err, name)
		acl, _, err := client.Conn().GetACL(lease.Path())
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{annsAlone}, acl)
		require.NoError(t, lease.Release())
	}

	cut, dial := dialled()
	client, err := w.connect(server, w.mechanism(saslkrb5.Config{Principal: "ann", Password: "secret"}), recipes.WithDialer(dial))
	require.NoError(t, err)
	lock, err := mutex.New(client, "/lock")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	states, stop := client.Subscribe()
	defer stop()
	for i := range 20 {
		if i == 10 {
			w.kdc.Stop()
		}
		cut()
		for state := range states {
			if state == recipes.Reconnected {
				break
			}
		}
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release())
}

// login connects with a keytab.
func login(ctx context.Context, servers []string, keytab string) (*recipes.Client, error) {
	mechanism, err := saslkrb5.New(saslkrb5.Config{Principal: "ann@EXAMPLE.COM", KeytabFile: keytab})
	if err != nil {
		return nil, err
	}
	return recipes.Connect(ctx, servers, recipes.WithSASL(mechanism))
}

func TestLoginOfReadme(t *testing.T) {
	w := newWorld(t)
	server := w.kdc.StartZooKeeper()
	t.Setenv("KRB5_CONFIG", w.kdc.Path("krb5.conf"))
	client, err := login(t.Context(), []string{server}, w.kdc.Path("ann.keytab"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
}

// Tickets with a lifetime of eight seconds are replaced after four, while logins continue. The lease outlives five
// tickets.
func TestTicketsAreReplaced(t *testing.T) {
	w := newWorld(t, "ticket_lifetime = 8s")
	server := w.kdc.StartZooKeeper()
	cut, dial := dialled()
	client, err := w.connect(server, w.mechanism(saslkrb5.Config{Principal: "ann", KeytabFile: w.kdc.Path("ann.keytab")}), recipes.WithDialer(dial))
	require.NoError(t, err)
	lock, err := mutex.New(client, "/lock")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	states, stop := client.Subscribe()
	defer stop()
	for range 20 {
		time.Sleep(time.Second) //nolint:forbidigo // a ticket ages
		cut()
		for state := range states {
			if state == recipes.Reconnected {
				break
			}
		}
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release())
}

// A KDC that takes connections and says nothing costs no lease: from half of the ticket's life on, logins ask for a new one in the background.
func TestSilentKDCCostsNoLease(t *testing.T) {
	w := newWorld(t, "ticket_lifetime = 14s")
	server := w.kdc.StartZooKeeper()
	cut, dial := dialled()
	askedAt := time.Now() // or a little later, so that the ticket is valid for longer than the test takes
	client, err := w.connect(server, w.mechanism(saslkrb5.Config{Principal: "ann", Password: "secret"}), recipes.WithDialer(dial))
	require.NoError(t, err)
	lock, err := mutex.New(client, "/lock")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	w.kdc.Stop()
	defer w.silence()()
	states, stop := client.Subscribe()
	defer stop()
	time.Sleep(time.Until(askedAt.Add(7500 * time.Millisecond))) //nolint:forbidigo // a ticket ages
	for time.Since(askedAt) < 12*time.Second {
		cut()
		beganAt := time.Now()
		for state := range states {
			if state == recipes.Reconnected {
				break
			}
		}
		require.Less(t, time.Since(beganAt), 2*time.Second, "T/6")
		time.Sleep(time.Second) //nolint:forbidigo // as above
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release())
}

// silence takes the connections to the KDC in its place, and answers nothing.
func (w *world) silence() (end func()) {
	w.Helper()
	config, err := os.ReadFile(w.kdc.Path("krb5.conf"))
	require.NoError(w, err)
	address := regexp.MustCompile(`\bkdc = (127\S+)`).FindSubmatch(config)
	require.NotNil(w, address)
	listener, err := net.Listen("tcp", string(address[1]))
	require.NoError(w, err)
	done := make(chan struct{})
	go func() { // ends with the listener; joined in end
		defer close(done)
		var taken []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			taken = append(taken, conn)
		}
		for _, conn := range taken {
			_ = conn.Close()
		}
	}()
	return func() {
		_ = listener.Close()
		<-done
	}
}

// dialled returns a dialer, and a function that cuts its latest connection.
func dialled() (cut func(), dialer zk.Dialer) {
	var latest atomic.Pointer[net.Conn]
	return func() { _ = (*latest.Load()).Close() }, func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		if err == nil {
			latest.Store(&conn)
		}
		return conn, err
	}
}

// Each failure has a name, which the error of Connect matches.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	server := w.kdc.StartZooKeeper()
	refused := func(want error, cfg saslkrb5.Config) {
		t.Helper()
		_, err := w.connect(server, w.mechanism(cfg))
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, recipes.ErrLoginRefused)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "Wr0ng")
	}
	refused(saslkrb5.ErrWrongKey, saslkrb5.Config{Principal: "ann", Password: "Wr0ng"})
	refused(saslkrb5.ErrWrongKey, saslkrb5.Config{Principal: "eve", Password: "secret"})
	refused(saslkrb5.ErrUnknownServer, saslkrb5.Config{Principal: "ann", Password: "secret", Service: "none"})
	refused(recipes.ErrLoginRefused, saslkrb5.Config{Principal: "ann", Password: "secret", Service: "keeper"}) // not the server's key

	w.kdc.Kinit("short", "-l", "2s")
	expired := saslkrb5.Config{CacheFile: w.kdc.Path("short")}
	mechanism := w.mechanism(expired)
	require.Eventually(t, func() bool {
		client, err := recipes.Connect(t.Context(), []string{server}, mechanism)
		if err == nil {
			require.NoError(t, client.Close())
		}
		return err != nil
	}, patience, 500*time.Millisecond)
	refused(saslkrb5.ErrTicketExpired, expired)

	w.kdc.Stop()
	_, err := w.connect(server, w.mechanism(saslkrb5.Config{Principal: "ann", Password: "secret"}), recipes.WithConnectTimeout(5*time.Second))
	require.ErrorIs(t, err, saslkrb5.ErrKDCUnreachable)
	require.NotErrorIs(t, err, recipes.ErrLoginRefused)

	w.kdc.Start("faketime", "-f", "+1h")
	refused(saslkrb5.ErrClockSkew, saslkrb5.Config{Principal: "ann", Password: "secret"})
}

func TestNewRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("krb5.conf"), []byte("[libdefaults]\n default_realm = EXAMPLE.COM\n"), 0o600))
	for want, cfg := range map[string]saslkrb5.Config{
		"give one of Password, KeytabFile and CacheFile": {Principal: "ann"},
		"one of Password, KeytabFile":                    {Principal: "ann", Password: "secret", KeytabFile: "x"},
		`principal "": give user@REALM`:                  {Password: "secret"},
		`principal "ann@": give user@REALM`:              {Principal: "ann@", Password: "secret"},
		"leave Principal empty":                          {Principal: "ann", CacheFile: "x"},
		"no such file":                                   {Principal: "ann", KeytabFile: path("none")},
		"cache-none":                                     {CacheFile: path("cache-none")},
		"configuration /none":                            {Principal: "ann", Password: "secret", ConfigFile: "/none"},
	} {
		if cfg.ConfigFile == "" {
			cfg.ConfigFile = path("krb5.conf")
		}
		_, err := saslkrb5.New(cfg)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	m, err := saslkrb5.New(saslkrb5.Config{Principal: "ann", Password: "secret", ConfigFile: path("krb5.conf")})
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb, m), "secret")
	}
}
