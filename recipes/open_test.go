package recipes_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// open opens a client of a server.
func open(t *testing.T, server *zktest.Server, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	opts = append([]recipes.Option{recipes.WithDialer(server.Dialer()), recipes.WithSessionTimeout(6 * time.Second)}, opts...)
	client, err := recipes.Open([]string{server.Addr()}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// records are a client's in the log.
type records struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (r *records) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// recordsIn collects the records of a client.
func recordsIn(r *records) recipes.Option {
	return recipes.WithLogger(slog.New(slog.NewTextHandler(r, nil)))
}

// Open returns at once. Operations started without a server complete once a server is reachable.
func TestOpenBeforeTheServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		beganAt := time.Now()
		client := open(t, server)
		require.Zero(t, time.Since(beganAt))
		require.Equal(t, recipes.Suspended, client.State())
		states, stop := client.Subscribe()
		defer stop()
		require.Equal(t, recipes.Suspended, <-states)

		election, err := latch.New(client, "/leader")
		require.NoError(t, err)
		require.NoError(t, election.Start())
		defer func() { require.NoError(t, election.Close()) }()
		lock, err := mutex.New(client, "/lock")
		require.NoError(t, err)
		acquired := make(chan *recipes.Lease)
		go func() {
			lease, err := lock.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			acquired <- lease
		}()
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		require.Equal(t, recipes.Suspended, client.State())
		require.ErrorContains(t, client.Health().Err, "connection refused")

		require.NoError(t, server.Restart())
		require.Equal(t, recipes.Connected, <-states)
		lease := <-acquired
		require.NoError(t, lease.Release())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		term, err := election.Await(ctx)
		require.NoError(t, err)
		require.Positive(t, term.FencingToken())
	})
}

// An acquisition with a deadline returns the reason why no server is reachable. So does one whose client is closed
// meanwhile.
func TestOpenWithoutServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		var log records
		client := open(t, server, recipes.WithConnectTimeout(20*time.Second), recordsIn(&log))
		lock, err := mutex.New(client, "/lock")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		beganAt := time.Now()
		_, err = lock.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "connection refused")
		require.Equal(t, 15*time.Second, time.Since(beganAt))
		synctest.Wait()
		require.Contains(t, log.String(), `level=WARN msg="no server reached yet" after=1s err="dial pipe: connection refused"`)
		require.Equal(t, 1, strings.Count(log.String(), "no server reached yet"))

		failed := make(chan error)
		go func() {
			_, err := lock.Acquire(t.Context())
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, client.Close())
		require.ErrorIs(t, <-failed, recipes.ErrClosed)
	})
}

// Requests wait until the server accepts the credentials. The lock is in a directory that no other user may use.
func TestOpenPresentsCredentialsFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		owner := open(t, server, recipes.WithAuth("digest", []byte("ann:secret")), recipes.WithACL(zk.DigestACL(zk.PermAll, "ann", "secret")...))
		lock, err := mutex.New(owner, "/lock")
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release())
		require.NoError(t, owner.Close())

		server.Stop()
		client := open(t, server, recipes.WithAuth("digest", []byte("bob:other")), recipes.WithAuth("digest", []byte("ann:secret")))
		again, err := mutex.New(client, "/lock")
		require.NoError(t, err)
		acquired := make(chan error)
		go func() {
			lease, err := again.Acquire(t.Context())
			if err == nil {
				err = lease.Release()
			}
			acquired <- err
		}()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		// The first credential is accepted at the third attempt, and then lost with each connection.
		logins := 0
		defer server.Inject(func(r zktest.Request) (f zktest.Fault) {
			if r.Op == zktest.OpAuth {
				logins++
				if logins != 3 && logins < 7 {
					f.Lost = zktest.ReplyLost
				}
			}
			return f
		})()
		require.NoError(t, server.Restart())
		require.NoError(t, <-acquired)
		require.Greater(t, logins, 7)
	})
}

// The client leaves a server that loses the answer to a credential, and still answers pings, after an operation
// timeout.
func TestOpenWithALostAnswerToACredential(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.DropAnswer(zktest.OpAuth, 1)
		client := open(t, server, recipes.WithAuth("digest", []byte("ann:secret")))
		lock, err := mutex.New(client, "/lock")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := lock.Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release())
	})
}

// Bad arguments fail at the call.
func TestOpenRefusesBadArguments(t *testing.T) {
	for want, test := range map[string]struct {
		servers []string
		opt     recipes.Option
	}{
		"recipes: open: no servers given":              {nil, recipes.WithSlowWait(0)},
		"recipes: open a:0: server":                    {[]string{"a:0"}, recipes.WithSlowWait(0)},
		"recipes: open a: session timeout: 0s is not":  {[]string{"a"}, recipes.WithSessionTimeout(0)},
		"give credentials with WithAuth":               {[]string{"zk://ann:secret@a"}, recipes.WithSlowWait(0)},
		"recipes: open a,b: connect timeout: 0s is no": {[]string{"a", "b"}, recipes.WithConnectTimeout(0)},
	} {
		client, err := recipes.Open(test.servers, test.opt)
		require.Nil(t, client)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A refusal of the credentials is reported once in the log, in the health, and by every call. The client keeps
// trying.
func TestOpenWithRefusedCredentials(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var log records
		client := open(t, server, recipes.WithAuth("unknown", []byte("secret")), recordsIn(&log))
		lock, err := mutex.New(client, "/lock")
		require.NoError(t, err)
		requests := server.Observe()
		defer requests.Stop()
		beganAt := time.Now()
		_, err = lock.Acquire(t.Context())
		require.ErrorIs(t, err, zk.ErrAuthFailed, "somebody has to act")
		require.Equal(t, 10*time.Second, time.Since(beganAt), "the operation timeout")
		require.ErrorContains(t, err, `authenticate with scheme "unknown": zk: client authentication failed`)
		require.ErrorIs(t, client.Health().Err, zk.ErrAuthFailed)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
		require.Contains(t, log.String(), `msg="the server refuses the credentials" server=`)
		require.NotContains(t, log.String(), "secret")
		require.Zero(t, requests.Count(zktest.OpCreate2))
		require.Greater(t, requests.Count(zktest.OpAuth), 3)
		require.Less(t, requests.Count(zktest.OpAuth), 20, "pauses between the attempts")
	})
}

// The user's own requests fail while no server is there, as on any zk.Conn, and a close of the connection closes the client.
func TestConnOfOpenWithoutServers(t *testing.T) {
	refusing := func(t *testing.T) *recipes.Client {
		t.Helper()
		server := zktest.NewServer(t, zktest.WithTLS(&tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}))
		client := open(t, server, recipes.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12}))
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		return client
	}
	stopped := func(t *testing.T) *recipes.Client {
		t.Helper()
		server := zktest.NewServer(t)
		server.Stop()
		return open(t, server)
	}
	for name, clientOf := range map[string]func(t *testing.T) *recipes.Client{"stopped": stopped, "refusing": refusing} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				client := clientOf(t)
				beganAt := time.Now()
				_, _, err := client.Conn().Get("/")
				require.ErrorIs(t, err, zk.ErrNoServer)
				require.LessOrEqual(t, time.Since(beganAt), 12*time.Second)

				lock, err := mutex.New(client, "/lock")
				require.NoError(t, err)
				failed := make(chan error)
				go func() {
					_, err := lock.Acquire(t.Context())
					failed <- err
				}()
				client.Conn().Close()
				require.ErrorIs(t, <-failed, recipes.ErrClosed)
				require.LessOrEqual(t, time.Since(beganAt), 24*time.Second)
				require.Equal(t, recipes.Closed, client.State())

				time.Sleep(time.Minute) //nolint:forbidigo // virtual time
				beganAt = time.Now()
				require.NoError(t, client.Close())
				require.Zero(t, time.Since(beganAt))
			})
		})
	}
}

// Connect logs after a second that it waits for a server, long before its timeout.
func TestConnectWithoutServersIsInTheLog(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		var log records
		failed := make(chan error)
		go func() { // joined below
			_, err := recipes.Connect(t.Context(), server.Addrs(), recipes.WithDialer(server.Dialer()), recordsIn(&log))
			failed <- err
		}()
		time.Sleep(999 * time.Millisecond) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.NotContains(t, log.String(), "no server reached yet")
		time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.Contains(t, log.String(), `level=WARN msg="no server reached yet" after=1s err="dial pipe: connection refused"`)
		require.Error(t, <-failed)
		require.Equal(t, 1, strings.Count(log.String(), "no server reached yet"))
	})
}

// The error says which of two bounds ended Connect, because the caller of Connect sees no deadline in the program.
func TestErrorOfConnectNamesTheBound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		_, err := recipes.Connect(t.Context(), server.Addrs(), recipes.WithDialer(server.Dialer()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "recipes: connect "+server.Addr()+
			": context deadline exceeded: connect timeout of 15s: dial pipe: connection refused")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = recipes.Connect(ctx, server.Addrs(), recipes.WithDialer(server.Dialer()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "connect timeout")
	})
}

// A server that shows a certificate of an unknown authority stays refused.
func TestOpenWithRefusedCertificate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t, zktest.WithTLS(&tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}))
		var log records
		client := open(t, server, recipes.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12}), recordsIn(&log))
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
		require.Contains(t, log.String(), `msg="every server refuses the client" err="TLS with`)
		require.LessOrEqual(t, strings.Count(log.String(), "no server reached yet"), 1, "none if the refusals are enough within a second")
		require.ErrorContains(t, client.Health().Err, "certificate")
	})
}

// selfSigned returns a certificate that no client trusts.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, public, private)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}
