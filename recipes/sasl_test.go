package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/digestmd5"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// annsServer is an ensemble that requires a login, with one user.
func annsServer(t *testing.T, opts ...zktest.Option) *zktest.Server {
	t.Helper()
	return zktest.NewServer(t, append(opts, zktest.WithSASL(map[string]string{"ann": "secret"}), zktest.WithSASLRequired())...)
}

// connectAs connects with options, and closes the client at the end of the test.
func connectAs(t *testing.T, server *zktest.Server, opts ...recipes.Option) (*recipes.Client, error) {
	t.Helper()
	opts = append([]recipes.Option{recipes.WithDialer(server.Dialer()), recipes.WithSessionTimeout(6 * time.Second)}, opts...)
	client, err := recipes.Connect(t.Context(), server.Addrs(), opts...)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, client.Close()) })
	}
	return client, err
}

func acquireAt(t *testing.T, client *recipes.Client, path string) *recipes.Lease {
	t.Helper()
	lock, err := mutex.New(client, path)
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	return lease
}

// The login precedes every other request, on each connection, because the server refuses requests before it. A lease survives
// 20 reconnects.
func TestSASLLoginOnEachConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := annsServer(t, zktest.WithServers(2))
		log := server.Observe()
		defer log.Stop()
		client, err := connectAs(t, server,
			recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}))
		require.NoError(t, err)
		lease := acquireAt(t, client, "/locks/a")
		states, stop := client.Subscribe()
		defer stop()
		for range 20 {
			server.Disconnect()
			for state := range states {
				if state == recipes.Reconnected {
					break
				}
			}
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
		}
		require.NoError(t, context.Cause(lease.Context()))
		require.NoError(t, lease.Release())
		logins := log.Requests(zktest.OpSASL)
		require.Len(t, logins, 2*21, "two messages on each connection")
		acl, _, err := client.Conn().GetACL("/locks")
		require.NoError(t, err)
		require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}}, acl)
	})
}

// A refused login is a named error, soon, and the text says why. No text has the password.
func TestSASLRefusals(t *testing.T) {
	wrong := recipes.WithSASL(recipes.DigestMD5("ann", "Wr0ng"))
	for name, test := range map[string]struct {
		server []zktest.Option
		login  recipes.Option
		want   string
	}{
		"wrong password": {[]zktest.Option{zktest.WithSASL(map[string]string{"ann": "secret"})}, wrong, "SASL login: login refused by the server: wrong user or password"},
		"wrong password, login required": {
			[]zktest.Option{zktest.WithSASL(map[string]string{"ann": "secret"}), zktest.WithSASLRequired()},
			wrong,
			"SASL login: login refused by the server: wrong user or password",
		},
		"unknown user":       {[]zktest.Option{zktest.WithSASL(map[string]string{"bob": "Wr0ng"})}, wrong, "wrong user or password"},
		"server without one": {nil, wrong, "login refused: the server offers no SASL login: its JAAS configuration has no Server section"},
		"several servers":    {[]zktest.Option{zktest.WithSASL(map[string]string{"ann": "secret"}), zktest.WithServers(3)}, wrong, "wrong user or password"},
		"mechanism":          {[]zktest.Option{zktest.WithSASL(map[string]string{"ann": "secret"})}, recipes.WithSASL(expired{}), "login refused: the ticket has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				beganAt := time.Now()
				_, err := connectAs(t, zktest.NewServer(t, test.server...), test.login)
				require.ErrorIs(t, err, recipes.ErrLoginRefused)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, test.want)
				require.NotContains(t, err.Error(), "Wr0ng")
				require.Less(t, time.Since(beganAt), 5*time.Second)
			})
		})
	}
}

// expired is a mechanism with an expired ticket.
type expired struct{}

func (expired) Begin(context.Context, string) (recipes.SASLLogin, error) {
	return nil, fmt.Errorf("%w: the ticket has expired", recipes.ErrLoginRefused)
}

// A client without a login gets the name of what is missing.
func TestSASLRequiredOfClientWithoutLogin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, err := connectAs(t, annsServer(t), recipes.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err, "the handshake needs no login")
		lock, err := mutex.New(client, "/locks/a")
		require.NoError(t, err)
		_, err = lock.Acquire(t.Context())
		require.ErrorIs(t, err, recipes.ErrLoginRefused)
		require.ErrorContains(t, err, "log in with WithSASL")
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		require.ErrorIs(t, client.Health().Err, recipes.ErrLoginRefused)
	})
}

// A server that is silent in the middle of a login is left for another, within T/6, and a lease stands.
func TestSASLSilenceInLogin(t *testing.T) {
	for _, nth := range []int{1, 2} {
		t.Run(fmt.Sprint("message ", nth), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				server := annsServer(t, zktest.WithServers(2))
				client, err := connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")))
				require.NoError(t, err)
				lease := acquireAt(t, client, "/locks/a")
				silent, messages := "", 0
				defer server.Inject(func(r zktest.Request) (f zktest.Fault) {
					if r.Op != zktest.OpSASL || silent != "" && r.Server != silent {
						return f
					}
					silent = r.Server
					if messages++; messages >= nth {
						f.Lost = zktest.NoAnswer
					}
					return f
				})()
				server.Disconnect()
				beganAt := time.Now()
				for client.State() != recipes.Connected || time.Since(beganAt) == 0 {
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
				}
				require.NotEmpty(t, silent)
				require.InDelta(t, time.Second, time.Since(beganAt), float64(30*time.Millisecond), "a sixth of the session timeout")
				time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
				require.NoError(t, context.Cause(lease.Context()))
				require.NoError(t, lease.Release())
			})
		})
	}
}

// With a single server that never answers, Connect ends at its timeout and says what is missing.
func TestSASLWithoutAnswer(t *testing.T) {
	for lost, want := range map[zktest.Loss]string{
		zktest.NoAnswer:  "SASL login: the server does not answer",
		zktest.ReplyLost: "SASL login: EOF",
	} {
		testkit.Bubble(t, func(t *testing.T) {
			server := annsServer(t)
			defer server.Inject(func(r zktest.Request) (f zktest.Fault) {
				if r.Op == zktest.OpSASL {
					f.Lost = lost
				}
				return f
			})()
			beganAt := time.Now()
			_, err := connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recipes.WithConnectTimeout(8*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, recipes.ErrLoginRefused)
			require.ErrorContains(t, err, want)
			require.InDelta(t, 8*time.Second, time.Since(beganAt), float64(10*time.Millisecond))
		})
	}
}

// Servers before 3.6 refuse a password by hanging up. A single hang-up is a lost connection.
func TestSASLHangUpAfterThePassword(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := annsServer(t)
		messages := 0
		limit := 2
		defer server.Inject(func(r zktest.Request) (f zktest.Fault) {
			if r.Op == zktest.OpSASL {
				if messages++; messages%2 == 0 && messages <= limit {
					f.Lost = zktest.ReplyLost
				}
			}
			return f
		})()
		_, err := connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")))
		require.NoError(t, err, "a lost connection")
		messages, limit = 0, 1000
		_, err = connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")))
		require.ErrorIs(t, err, recipes.ErrLoginRefused)
		require.ErrorContains(t, err, "the server closed the connection without an answer: wrong user or password")

		var log records
		client, err := recipes.Open(server.Addrs(), recipes.WithDialer(server.Dialer()), recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recordsIn(&log))
		require.NoError(t, err)
		requests := server.Observe()
		defer requests.Stop()
		time.Sleep(10 * time.Minute) //nolint:forbidigo // virtual time
		require.Equal(t, 1, strings.Count(log.String(), `level=ERROR msg="every server refuses the client"`))
		require.Less(t, requests.Count(zktest.OpConnect), 90, "one each ten seconds")
		require.NoError(t, client.Close())
	})
}

// Starting servers hang up in the middle of logins. Connect waits for them, even if one of the names is refused permanently.
func TestSASLHangUpsOfServersThatStart(t *testing.T) {
	for _, refused := range []int{0, 1} {
		testkit.Bubble(t, func(t *testing.T) {
			server := annsServer(t, zktest.WithServers(3))
			startedAt := time.Now().Add(7 * time.Second)
			defer server.Inject(func(r zktest.Request) (f zktest.Fault) {
				if r.Op == zktest.OpSASL && time.Now().Before(startedAt) {
					f.Lost = zktest.RequestLost
				}
				return f
			})()
			client, err := connectAs(t, server, recipes.WithSASL(refusing{recipes.DigestMD5("ann", "secret"), server.Addrs()[:refused]}))
			require.NoError(t, err)
			require.NoError(t, acquireAt(t, client, "/locks/a").Release())
		})
	}
}

// refusing is a mechanism that has no ticket for some servers.
type refusing struct {
	recipes.SASLMechanism

	servers []string
}

func (r refusing) Begin(ctx context.Context, server string) (recipes.SASLLogin, error) {
	if slices.Contains(r.servers, server) {
		return nil, fmt.Errorf("%w: no ticket for %s", recipes.ErrLoginRefused, server)
	}
	return r.SASLMechanism.Begin(ctx, server)
}

// A password that changes under a client is reported once, and a correction resolves the problem. Meanwhile the servers are
// spared.
func TestSASLPasswordChanges(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := annsServer(t)
		var log records
		client, err := connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recordsIn(&log))
		require.NoError(t, err)
		lease := acquireAt(t, client, "/locks/a")
		server.SetPassword("ann", "other")
		requests := server.Observe()
		defer requests.Stop()
		server.Disconnect()
		<-lease.Context().Done()
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrSessionLost)
		time.Sleep(10 * time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
		require.Contains(t, log.String(), `level=ERROR msg="every server refuses the client" err="handshake with pipe: SASL login: login refused by the server: wrong user or password"`)
		require.Less(t, requests.Count(zktest.OpConnect), 90, "one each ten seconds")
		require.ErrorIs(t, client.Health().Err, recipes.ErrLoginRefused)
		require.NotContains(t, log.String(), "secret")

		server.SetPassword("ann", "secret")
		require.NoError(t, acquireAt(t, client, "/locks/a").Release())
		server.SetPassword("ann", "other")
		server.Disconnect()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), "a new series")
	})
}

// Open has no caller to return an error to. The log has the refusal, and the lock fails with it after an operation
// timeout.
func TestSASLRefusalAfterOpen(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := annsServer(t)
		var log records
		client := open(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "Wr0ng")), recordsIn(&log))
		lock, err := mutex.New(client, "/locks/a")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = lock.Acquire(ctx)
		require.ErrorIs(t, err, recipes.ErrLoginRefused)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
		server.SetPassword("ann", "Wr0ng")
		require.NoError(t, acquireAt(t, client, "/locks/a").Release())
	})
}

// A mechanism is foreign code: it may be silent for ever, or panic.
func TestSASLMechanismMisbehaves(t *testing.T) {
	for name, begin := range map[string]func(context.Context){
		"waits": func(ctx context.Context) { <-ctx.Done() },
		"fails": func(context.Context) {},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				_, err := connectAs(t, annsServer(t), recipes.WithSASL(&strange{begin}), recipes.WithConnectTimeout(10*time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "SASL login: ")
			})
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		var log records
		_, err := connectAs(t, annsServer(t), recipes.WithSASL(&strange{begin: func(context.Context) { panic("oops") }}),
			recipes.WithConnectTimeout(3*time.Second), recordsIn(&log))
		require.ErrorContains(t, err, "SASL login: panic: oops")
		require.Contains(t, log.String(), `msg="panic in a callback"`)
	})
	// The client continues without a mechanism that ignores its context, and Close says so.
	testkit.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		beganAt := time.Now()
		_, err := connectAs(t, annsServer(t), recipes.WithSASL(&strange{begin: func(context.Context) { <-release }}), recipes.WithConnectTimeout(10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(beganAt), 40*time.Second, "the waits of Close come on top")
		close(release)
	})
}

// strange is a mechanism that runs a function, and fails.
type strange struct{ begin func(context.Context) }

func (s *strange) Begin(ctx context.Context, _ string) (recipes.SASLLogin, error) {
	s.begin(ctx)
	return nil, errors.New("no ticket")
}

func TestSASLRefusesBadInput(t *testing.T) {
	for want, opts := range map[string][]recipes.Option{
		"sasl: nil mechanism":                 {recipes.WithSASL(nil)},
		"sasl: DigestMD5: empty user":         {recipes.WithSASL(recipes.DigestMD5("", "secret"))},
		"sasl: DigestMD5: empty password":     {recipes.WithSASL(recipes.DigestMD5("ann", ""))},
		"sasl: given twice, but a connection": {recipes.WithSASL(recipes.DigestMD5("ann", "secret")), recipes.WithSASL(recipes.DigestMD5("bob", "secret"))},
	} {
		_, err := recipes.Connect(t.Context(), []string{"localhost"}, opts...)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		require.NotContains(t, fmt.Sprintf(verb, recipes.DigestMD5("ann", "secret")), "secret")
	}
}

// A server that hangs up in the middle of a login accepted the session before, so it knows the session.
func TestSASLHangUpIsNoForgottenSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := annsServer(t)
		client, err := connectAs(t, server, recipes.WithSASL(recipes.DigestMD5("ann", "secret")))
		require.NoError(t, err)
		require.NoError(t, acquireAt(t, client, "/locks/a").Release())
		id := client.Conn().SessionID()
		remove := server.Inject(func(r zktest.Request) (f zktest.Fault) {
			if r.Op == zktest.OpSASL {
				f.Lost = zktest.RequestLost
			}
			return f
		})
		server.Disconnect()
		time.Sleep(30 * time.Second) //nolint:forbidigo // five session timeouts, in which each handshake keeps the session alive
		remove()
		require.NoError(t, acquireAt(t, client, "/locks/a").Release())
		require.Equal(t, id, client.Conn().SessionID())
	})
}

// The server has to prove that it knows the password. A server that accepts any password is refused.
func TestSASLServerProvesThePassword(t *testing.T) {
	login, err := recipes.DigestMD5("ann", "secret").Begin(t.Context(), "zk1:2181")
	require.NoError(t, err)
	response, isDone, err := login.Respond(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, isDone)
	require.Equal(t, []byte{}, response)
	_, isDone, err = login.Respond(t.Context(), digestmd5.NewServer().Challenge())
	require.NoError(t, err)
	require.False(t, isDone)
	_, _, err = login.Respond(t.Context(), []byte("rspauth="+strings.Repeat("0", 32)))
	require.ErrorIs(t, err, recipes.ErrLoginRefused)
	require.ErrorContains(t, err, "the server does not prove that it knows the password")
}
