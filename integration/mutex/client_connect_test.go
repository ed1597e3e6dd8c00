package mutex_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestConnectToNobody(t *testing.T) {
	const limit = 1500 * time.Millisecond
	address := closedPort(t)
	began := time.Now()
	client, err := recipes.Connect(t.Context(), []string{address}, recipes.WithConnectTimeout(limit))
	took := time.Since(began)
	require.Nil(t, client)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var refused *net.OpError
	require.ErrorAs(t, err, &refused, "the dial error is wrapped")
	require.Equal(t, "dial", refused.Op)
	require.ErrorContains(t, err, address)
	var op *recipes.OpError
	require.ErrorAs(t, err, &op)
	require.GreaterOrEqual(t, took, limit)
	require.Less(t, took, limit+2*time.Second)
	t.Log(err)
}

func TestConnectToSilentServer(t *testing.T) {
	const limit = time.Second
	for name, hold := range map[string]func(*faultproxy.Proxy){
		"both ways": (*faultproxy.Proxy).Hold,
		"answers":   (*faultproxy.Proxy).HoldDown,
	} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
			hold(proxy)
			began := time.Now()
			_, err := recipes.Connect(t.Context(), []string{proxy.Addr()}, recipes.WithConnectTimeout(limit), recipes.WithSessionTimeout(3*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), limit+2*time.Second)
			t.Log(err)
			testkit.Eventually(t, func() bool { return proxy.Live() == 0 }, "nothing goes on behind it")
			proxy.Release()
		})
	}
}

// TestConnectSurvivesFirstFailures starts a server within the connect timeout.
func TestConnectSurvivesFirstFailures(t *testing.T) {
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	proxy.Refuse(true)
	connected := make(chan error, 1)
	go func() {
		client, err := recipes.Connect(testkit.Context(t), []string{proxy.Addr()})
		if err == nil {
			err = client.Close()
		}
		connected <- err
	}()
	testkit.Eventually(t, func() bool { return proxy.Counts().Conns >= 2 }, "two attempts")
	proxy.Refuse(false)
	require.NoError(t, <-connected)
}

func TestConnectCancelled(t *testing.T) {
	address := closedPort(t)
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := recipes.Connect(ctx, []string{address})
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("meanwhile", func(t *testing.T) {
		proxy := faultproxy.New(t, address)
		proxy.Hold()
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := recipes.Connect(ctx, []string{proxy.Addr()})
			failed <- err
		}()
		testkit.Eventually(t, func() bool { return proxy.Live() == 1 }, "an attempt")
		cancel(errShutdown)
		began := time.Now()
		err := <-failed
		require.Less(t, time.Since(began), 2*time.Second)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errShutdown)
	})
}

// errShutdown is the cause of a test's own cancellation.
var errShutdown = errors.New("shutdown")

// TestConnectContextBoundsNothingLater: DESIGN §2.
func TestConnectContextBoundsNothingLater(t *testing.T) {
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	ctx, cancel := context.WithCancel(t.Context())
	client, err := recipes.Connect(ctx, []string{proxy.Addr()}, recipes.WithConnectTimeout(5*time.Second), recipes.WithSessionTimeout(calm))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	lease := acquire(t, newMutex(t, client, testkit.Path(t)))
	cancel()
	cutAndReconnect(t, client, proxy)
	stands(t, lease)
	require.NoError(t, lease.Release())
}

func TestConnectRefusesBadOptions(t *testing.T) {
	good := []string{closedPort(t)}
	cases := []struct {
		name    string
		servers []string
		opts    []recipes.Option
	}{
		{"nil servers", nil, nil},
		{"empty servers", []string{}, nil},
		{"empty server", []string{""}, nil},
		{"one of two empty", []string{good[0], ""}, nil},
		{"blank server", []string{" "}, nil},
		{"no number as port", []string{"host:notaport"}, nil},
		{"port 0", []string{"host:0"}, nil},
		{"port too high", []string{"host:65536"}, nil},
		{"negative port", []string{"host:-1"}, nil},
		{"no host", []string{":2181"}, nil},
		{"chroot before the last server", []string{"host/chroot", "host2"}, nil},
		{"chroot of each server", []string{"host:2181/chroot,host2/chroot"}, nil},
		{"chroot with trailing slash", []string{"host:2181/chroot/"}, nil},
		{"scheme", []string{"zk://host:2181"}, nil},
		{"nil option", good, []recipes.Option{nil}},
		{"nil logger", good, []recipes.Option{recipes.WithLogger(nil)}},
		{"nil dialer", good, []recipes.Option{recipes.WithDialer(nil)}},
		{"nil TLS", good, []recipes.Option{recipes.WithTLS(nil)}},
		{"session timeout 0", good, []recipes.Option{recipes.WithSessionTimeout(0)}},
		{"session timeout negative", good, []recipes.Option{recipes.WithSessionTimeout(-time.Second)}},
		{"session timeout below a millisecond", good, []recipes.Option{recipes.WithSessionTimeout(time.Microsecond)}},
		{"session timeout too long for the wire", good, []recipes.Option{recipes.WithSessionTimeout(25 * 24 * time.Hour)}},
		{"connect timeout 0", good, []recipes.Option{recipes.WithConnectTimeout(0)}},
		{"connect timeout negative", good, []recipes.Option{recipes.WithConnectTimeout(-1)}},
		{"operation timeout 0", good, []recipes.Option{recipes.WithOperationTimeout(0)}},
		{"operation timeout negative", good, []recipes.Option{recipes.WithOperationTimeout(-1)}},
		{"retry policy: negative attempts", good, []recipes.Option{recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: -1})}},
		{"retry policy: negative interval", good, []recipes.Option{recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: -1})}},
		{"retry policy: negative elapsed", good, []recipes.Option{recipes.WithRetryPolicy(recipes.RetryPolicy{MaxElapsed: -1})}},
		{"empty ACL", good, []recipes.Option{recipes.WithACL()}},
		{"namespace with ..", good, []recipes.Option{recipes.WithNamespace("a/../b")}},
		{"namespace with //", good, []recipes.Option{recipes.WithNamespace("a//b")}},
		{"namespace with trailing slash", good, []recipes.Option{recipes.WithNamespace("a/")}},
		{"reserved namespace", good, []recipes.Option{recipes.WithNamespace("zookeeper")}},
		{"namespace with NUL", good, []recipes.Option{recipes.WithNamespace("a\x00")}},
		{"empty auth scheme", good, []recipes.Option{recipes.WithAuth("", []byte("a:b"))}},
		{"unknown error policy", good, []recipes.Option{recipes.WithErrorPolicy(7)}},
		{"the second of two", good, []recipes.Option{recipes.WithSessionTimeout(time.Second), recipes.WithLogger(nil)}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			client, err := recipes.Connect(testkit.Context(t), tc.servers, tc.opts...)
			require.Error(t, err)
			require.Nil(t, client)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "refused at once, not by trying")
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

func TestMutexRefusesBadPaths(t *testing.T) {
	client, proxy := proxied(t)
	for _, path := range []string{
		"", "relative", "relative/path", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b",
		"/a\x00", "/a\x01b", "/a\tb", "/a\nb", "/a\x7f", "/a\u0085", "/a\ue000\uf8ff", "/a\ufff0", "/a\xff", "/zookeeper", "/zookeeper/x", "/zookeeper/quota",
	} {
		m, err := mutex.New(client, path)
		require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
		require.Nil(t, m)
		var op *recipes.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, path, op.Path)
	}
	for _, path := range []string{"/a", "/a/b", "/zookeepers", "/a/...", "/ä/日本", "/a b", "/.a/b."} {
		_, err := mutex.New(client, path)
		require.NoError(t, err, "%q", path)
	}
	_, err := mutex.New(nil, "/a")
	require.Error(t, err)
	_, err = mutex.New(new(recipes.Client), "/a")
	require.Error(t, err)
	_, err = mutex.New(client, "/a", nil)
	require.Error(t, err)
	_, err = mutex.New(client, "/a", mutex.WithRevocationListener(nil))
	require.Error(t, err)
	_, err = mutex.New(client, "/a", mutex.WithID(string(make([]byte, 1<<20))))
	require.Error(t, err)
	require.Zero(t, proxy.Counts().Total(), "nothing is sent")
}
