package inspect_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Walk shows the queues below the namespace, with paths that Read and recipes accept; the paths of
// contenders are those on the server.
func TestWalkInANamespace(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/team/x/deep/a-lock-0000000001", "/team/b-latch-0000000002", "/team/y/c-lock-0000000003", "/other/d-lock-0000000004")
		inside := testclient.ConnectSettled(f, f.server, recipes.WithNamespace("team"))
		require.Equal(f, []string{"/ latch 1:002*", "/y mutex 1:003*", "/x/deep mutex 1:001*"}, walk(f, inside, "/"))
		require.Equal(f, []string{"/x/deep mutex 1:001*"}, walk(f, inside, "/x"))
		require.Equal(f, []string{"/other mutex 1:004*", "/team latch 1:002*", "/team/y mutex 1:003*", "/team/x/deep mutex 1:001*"}, walk(f, f.observer, "/"))
		for q, err := range inspect.Walk(f.Context(), inside, "/") {
			require.NoError(f, err)
			again := read(f, inside, q.Path)
			require.Equal(f, q, again)
			require.Equal(f, "/team", q.Contenders[0].Path[:5])
		}
	})
}

func TestWalkEndsEarlyAndFails(t *testing.T) {
	inBubble(t, func(f *fixture) {
		for i := range 40 {
			seed(f.server, fmt.Sprintf("/q/%02d/a-lock-0000000001", i))
		}
		require.Len(f, walk(f, f.observer, "/q"), 40)
		n := 0
		for _, err := range inspect.Walk(f.Context(), f.observer, "/q") {
			require.NoError(f, err)
			if n++; n == 3 {
				break
			}
		}
		require.Equal(f, 3, n)
		n = 0
		for q, err := range inspect.Walk(f.Context(), f.observer, "/missing") {
			require.ErrorIs(f, err, zk.ErrNoNode)
			require.Equal(f, "/missing", q.Path)
			n++
		}
		require.Equal(f, 1, n)
		n = 0
		for _, err := range inspect.Walk(f.Context(), f.observer, "/q") {
			if n++; n == 2 {
				require.NoError(f, f.observer.Close())
			}
			if err != nil {
				require.ErrorIs(f, err, recipes.ErrClosed)
				return
			}
		}
		require.Fail(f, "the walk must end with the client")
	})
}

// A contender that is deleted during the read is left out. The next one is then first.
func TestContenderLeavesMeanwhile(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/q/a/1-lock-0000000001", "/q/a/2-lock-0000000002", "/q/b/3-lock-0000000003")
		var once sync.Once
		f.server.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == "/q/a/1-lock-0000000001" {
				once.Do(func() { f.server.Delete("/q/a/1-lock-0000000001") })
			}
			return zktest.Fault{}
		})
		require.Equal(f, []string{"/q/a mutex 1:002*", "/q/b mutex 1:003*"}, walk(f, f.observer, "/q"))
	})
}

// Few requests are in flight at a time, for any number of contenders: a server that does not answer gets 16 at most.
// In a bubble the connection alone would hold back the others.
func TestReadsInFlight(t *testing.T) {
	server := zktest.NewServer(t)
	for i := range 10 {
		for k := range 50 {
			seed(server, fmt.Sprintf("/q/%d/a-lock-%010d", i, k))
		}
	}
	patient := recipes.WithSessionTimeout(time.Minute) // the silent server is not left
	observer := testclient.Dial(t, server.Addrs(), patient)
	log := server.Observe()
	require.Len(t, walk(t, observer, "/q"), 10)
	require.Len(t, log.Requests(zktest.OpGetData), 500, "one for each contender")
	var unanswered atomic.Int32 // the first read, and all requests behind it, because lists may still be under way
	answer := server.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpPing || r.Op != zktest.OpGetData && unanswered.Load() == 0 {
			return zktest.Fault{}
		}
		unanswered.Add(1)
		return zktest.Fault{Lost: zktest.NoAnswer}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var failure error
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, err := range inspect.Walk(ctx, observer, "/q") {
			failure = err
		}
	}()
	testkit.Eventually(t, func() bool { return unanswered.Load() >= 16 }, "the first requests")
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a 17th request would arrive in this time
	cancel()
	<-over
	answer()
	server.Disconnect(observer.Conn().SessionID())
	require.ErrorIs(t, failure, context.Canceled)
	require.EqualValues(t, 16, unanswered.Load())
}

// A directory that is deleted before it is read is no error.
func TestDirectoryDisappears(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.server.Put("/q/gone", nil)
		seed(f.server, "/q/here/a-lock-0000000001")
		defer f.server.Inject(func(r zktest.Request) zktest.Fault {
			if _, _, isThere := f.server.Get("/q/gone"); isThere && r.Path == "/q/gone" {
				f.server.Delete("/q/gone")
			}
			return zktest.Fault{}
		})()
		require.Equal(f, []string{"/q/here mutex 1:001*"}, walk(f, f.observer, "/q"))
	})
}

// The neighbours of an unreadable directory are shown, even if the directory looks like a part of a semaphore. So are the
// contents of a directory with the name of a contender.
func TestWalkBesideUnreadableDirectories(t *testing.T) {
	inBubble(t, func(f *fixture) {
		closed := []zk.ACL{{Perms: zk.PermWrite, Scheme: "world", ID: "anyone"}}
		f.server.Seed(zktest.Znode{Path: "/app/leases", ACL: closed})
		seed(f.server, "/app/other/x-lock-0000000001", "/shops/lock-0000000007/x-lock-0000000002")
		var got []string
		for q, err := range inspect.Walk(f.Context(), f.observer, "/") {
			if err != nil {
				require.ErrorIs(f, err, zk.ErrNoAuth)
				got = append(got, q.Path+" refused")
				continue
			}
			got = append(got, brief(q))
		}
		require.Equal(f, []string{
			"/app refused", "/shops mutex 1:*", "/app/leases refused", "/app/other mutex 1:001*", "/shops/lock-0000000007 mutex 1:002*",
		}, got)
	})
}
