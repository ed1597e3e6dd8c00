package inspect_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// fixture is a test in a bubble, with a server and a client that only looks.
type fixture struct {
	*testing.T
	server   *zktest.Server
	observer *recipes.Client
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(f *fixture)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		test(&fixture{t, server, testclient.ConnectSettled(t, server)})
	})
}

// seed makes ephemeral znodes of a session of their own, whose data are their names, in this order.
func seed(server *zktest.Server, paths ...string) {
	session := server.OpenSession(time.Hour)
	for _, path := range paths {
		server.Seed(zktest.Znode{Path: path, Data: []byte(path[len(path)-3:]), Session: session})
	}
}

// brief is a queue in short: its path and kind, and the position, ID and hold of each contender.
func brief(q inspect.Queue) string {
	text := q.Path + " " + q.Kind
	for _, c := range q.Contenders {
		text += fmt.Sprintf(" %d:%s", c.Position, c.ID)
		if c.Holds {
			text += "*"
		}
	}
	return text
}

func read(tb testing.TB, c *recipes.Client, path string) inspect.Queue {
	tb.Helper()
	q, err := inspect.Read(tb.Context(), c, path)
	require.NoError(tb, err)
	return q
}

func walk(tb testing.TB, c *recipes.Client, root string) (briefs []string) {
	tb.Helper()
	for q, err := range inspect.Walk(tb.Context(), c, root) {
		require.NoError(tb, err)
		briefs = append(briefs, brief(q))
	}
	return briefs
}

// A mutex is shown with its holder and token, its waiters and the times of their arrival, and revocations.
func TestReadMutex(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := testclient.ConnectSettled(f, f.server)
		lock := func(id string) *mutex.InterProcessMutex {
			m, err := mutex.New(client, "/locks/a", mutex.WithID(id))
			require.NoError(f, err)
			return m
		}
		acquiredAt := time.Now()
		held, err := lock("web-1").Acquire(f.Context())
		require.NoError(f, err)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		ctx, leave := context.WithCancel(f.Context())
		left := make(chan error, 1)
		go func() { // ends with the wait; joined through left
			_, err := lock("web-2").Acquire(ctx)
			left <- err
		}()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		require.NoError(f, revoke.New(f.observer).AttemptRevoke(f.Context(), held.Path()))

		q := read(f, f.observer, "/locks/a")
		require.Equal(f, "/locks/a mutex 1:* 2:web-2", brief(q))
		holder, waiter := q.Contenders[0], q.Contenders[1]
		require.Equal(f, held.Path(), holder.Path)
		require.Equal(f, held.FencingToken(), holder.Token)
		require.WithinDuration(f, acquiredAt, holder.Since, 10*time.Millisecond)
		require.True(f, holder.Revoked)
		require.False(f, waiter.Revoked)
		require.WithinDuration(f, acquiredAt.Add(time.Minute), waiter.Since, 10*time.Millisecond)
		require.Greater(f, waiter.Token, holder.Token)
		leave()
		require.ErrorIs(f, <-left, context.Canceled)
		require.NoError(f, held.Release())
		require.Equal(f, "/locks/a unknown", brief(read(f, f.observer, "/locks/a")))
	})
}

func TestReadLatch(t *testing.T) {
	inBubble(t, func(f *fixture) {
		l, err := latch.New(testclient.ConnectSettled(f, f.server), "/leader", latch.WithID("ann"))
		require.NoError(f, err)
		require.NoError(f, l.Start())
		term, err := l.Await(f.Context())
		require.NoError(f, err)
		q := read(f, f.observer, "/leader")
		require.Equal(f, "/leader latch 1:ann*", brief(q))
		require.Equal(f, term.FencingToken(), q.Contenders[0].Token)
		require.NoError(f, l.Close())
	})
}

// Who holds follows from the names alone, by the rule of each recipe.
func TestKindsAndHolders(t *testing.T) {
	tests := []struct {
		name  string
		nodes []string
		want  string
	}{
		{"zk.Lock and kazoo", []string{"_c_1-lock-0000000002", "2__lock__0000000001"}, "mutex 1:001* 2:002"},
		{"foreign children", []string{"config", "lock-", "x-lock-12"}, "unknown"},
		{"latch", []string{"a-latch-0000000002", "a-latch-0000000003"}, "latch 1:002* 2:003"},
		{"two kinds", []string{"a-latch-0000000002", "a-lock-0000000003"}, "unknown 1:002 2:003"},
		{"readers", []string{"a-__READ__0000000001", "a-__READ__0000000002"}, "rwlock 1:001* 2:002*"},
		{
			"readers ahead of a writer and behind",
			[]string{"a-__READ__0000000001", "b-__READ__0000000002", "0-__WRIT__0000000003", "c-__READ__0000000004"},
			"rwlock 1:001* 2:002* 3:003 4:004",
		},
		{"writer", []string{"z-__WRIT__0000000001", "c-__READ__0000000004"}, "rwlock 1:001* 2:004"},
		{"writer that reads too", []string{"z-__WRIT__0000000001", "a-__READ__0000000001", "c-__READ__0000000004"}, "rwlock 1:001* 2:001* 3:004"},
		{"two writers", []string{"z-__WRIT__0000000001", "a-__WRIT__0000000002"}, "rwlock 1:001* 2:002"},
		{"reader left of a writer", []string{"a-__READ__0000000001", "a-__WRIT__0000000002"}, "rwlock 1:001* 2:002"},
		{"a semaphore's names without its parts", []string{"a-lease-0000000001"}, "unknown"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				for _, name := range test.nodes {
					seed(f.server, "/q/"+name)
				}
				require.Equal(f, "/q "+test.want, brief(read(f, f.observer, "/q")))
			})
		})
	}
}

// Peek reads no more znodes than requested. The names show the kind, the order and the holders.
func TestPeek(t *testing.T) {
	for _, test := range []struct {
		dir   string
		names []string
		n     int
		want  string
		reads int
	}{
		{"/m", []string{"a-lock-0000000001", "a-lock-0000000002", "a-lock-0000000003"}, 0, "/m mutex 1:* 2: 3:", 0},
		{"/m", []string{"a-lock-0000000001", "a-lock-0000000002", "a-lock-0000000003"}, 1, "/m mutex 1:001* 2: 3:", 1},
		{"/m", []string{"a-lock-0000000001", "a-lock-0000000002"}, 9, "/m mutex 1:001* 2:002", 2},
		{"/m", []string{"a-lock-0000000001"}, -1, "/m mutex 1:*", 0},
		{"/l", []string{"a-latch-0000000001", "a-latch-0000000002"}, 0, "/l latch 1:* 2:", 0},
		{"/r", []string{"a__READ__0000000001", "a__READ__0000000002", "a__WRIT__0000000003"}, 1, "/r rwlock 1:001* 2:* 3:", 1},
		{"/s", []string{"leases/a-lease-0000000001", "leases/a-lease-0000000002", "locks/a-lock-0000000003"}, 0, "/s semaphore 1:* 2:* 3:", 0},
		{"/s", []string{"leases/a-lease-0000000001", "locks/a-lock-0000000002", "locks/a-lock-0000000003"}, 2, "/s semaphore 1:001* 2:002 3:", 2},
		{"/x", []string{"a-lock-0000000001", "a-latch-0000000002"}, 0, "/x unknown 1: 2:", 0},
	} {
		inBubble(t, func(f *fixture) {
			for _, name := range test.names {
				seed(f.server, test.dir+"/"+name) // each in a session of its own
			}
			requests := f.server.Observe()
			defer requests.Stop()
			q, err := inspect.Peek(f.Context(), f.observer, test.dir, test.n)
			require.NoError(f, err)
			require.Equal(f, test.want, brief(q))
			require.Equal(f, test.reads, requests.Count(zktest.OpGetData))
			for _, c := range q.Contenders {
				require.Contains(f, c.Path, test.dir+"/")
			}
		})
	}
	inBubble(t, func(f *fixture) {
		_, err := inspect.Peek(f.Context(), f.observer, "/missing", 1)
		require.ErrorIs(f, err, zk.ErrNoNode)
	})
}

// A semaphore's permits are first in the list. A permit that waits for another one does not count as a holder.
func TestSemaphore(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/sem/leases/a-lease-0000000001")
		require.Equal(f, "/sem semaphore 1:001*", brief(read(f, f.observer, "/sem")), "its own lock was removed")
		seed(f.server, "/sem/leases/b-lease-0000000002")
		seed(f.server, "/sem/locks/c-lock-0000000013", "/sem/leases/c-lease-0000000003")
		seed(f.server, "/sem/locks/d-lock-0000000014")
		require.Equal(f, "/sem semaphore 1:001* 2:002* 3:003 4:014", brief(read(f, f.observer, "/sem")))
		require.Equal(f, []string{"/sem semaphore 1:001* 2:002* 3:003 4:014"}, walk(f, f.observer, "/"), "not its parts")
	})
}

// A session with a permit that waits for another one still has the first.
func TestSemaphoreWithPermitsOfOneSession(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/sem/leases/a-lease-0000000001", "/sem/locks/a-lock-0000000011")
		require.Equal(f, "/sem semaphore 1:001* 2:011", brief(read(f, f.observer, "/sem")))
	})
}

func TestNoSemaphore(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/locks/goods/a-lock-0000000001", "/leases/car/a-lock-0000000002")
		require.Equal(f, "/ unknown", brief(read(f, f.observer, "/")))
		require.Equal(f, []string{"/leases/car mutex 1:002*", "/locks/goods mutex 1:001*"}, walk(f, f.observer, "/"))
		f.server.Put("/idle/locks", nil)
		f.server.Put("/idle/leases", nil)
		require.Equal(f, "/idle semaphore", brief(read(f, f.observer, "/idle")))
	})
}

func TestReadErrors(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, err := inspect.Read(f.Context(), f.observer, "/missing")
		require.ErrorIs(f, err, zk.ErrNoNode)
		require.EqualError(f, err, "inspect: read /missing: zk: node does not exist")
		_, err = inspect.Read(f.Context(), f.observer, "relative")
		require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		_, err = inspect.Read(f.Context(), nil, "/a")
		require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		for _, err := range inspect.Walk(f.Context(), nil, "/a") {
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_, err = inspect.Read(ctx, f.observer, "/")
		require.ErrorIs(f, err, context.Canceled)
		require.NoError(f, f.observer.Close())
		_, err = inspect.Read(f.Context(), f.observer, "/")
		require.ErrorIs(f, err, recipes.ErrClosed)
	})
}

// While there is no answer, the context bounds the wait. After a lost answer the read is repeated.
func TestReadWhileTheServerIsSilent(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/q/a-lock-0000000001")
		f.server.DropReply(zktest.OpGetChildren2, 1)
		f.server.DropReply(zktest.OpGetData, 1)
		require.Equal(f, "/q mutex 1:001*", brief(read(f, f.observer, "/q")))
		f.server.Freeze()
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := inspect.Read(ctx, f.observer, "/q")
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.Equal(f, time.Second, time.Since(began))
		f.server.Heal()
	})
}

// An unreadable znode has everything but its ID. An unreadable directory is an error of Walk, which continues.
func TestNoPermission(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/a/x-lock-0000000001", "/c/x-lock-0000000003")
		closed := []zk.ACL{{Perms: zk.PermWrite, Scheme: "world", ID: "anyone"}}
		f.server.Seed(zktest.Znode{Path: "/b", ACL: closed})
		f.server.Seed(zktest.Znode{Path: "/c/y-lock-0000000004", Data: []byte("secret"), ACL: closed})
		q := read(f, f.observer, "/c")
		require.Equal(f, "/c mutex 1:003* 2:", brief(q))
		require.NotZero(f, q.Contenders[1].Token)
		var got []string
		for q, err := range inspect.Walk(f.Context(), f.observer, "/") {
			if err != nil {
				require.ErrorIs(f, err, zk.ErrNoAuth)
				got = append(got, q.Path+" refused")
				continue
			}
			got = append(got, brief(q))
		}
		require.Equal(f, []string{"/a mutex 1:001*", "/b refused", "/c mutex 1:003* 2:"}, got)
	})
}

// A znode that is not ephemeral is shown as such, whether it is a directory or a leftover.
func TestZnodesThatAreNotEphemeral(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.server.Put("/locks/lock-0000000000/x", nil)
		f.server.Put("/leader/a-latch-0000000000", nil)
		f.server.Put("/permits/leases/a-lease-0000000000", nil)
		seed(f.server, "/locks/b-lock-0000000001", "/leader/b-latch-0000000001", "/permits/leases/b-lease-0000000001", "/rw/b-__READ__0000000001")
		f.server.Put("/rw/a-__WRIT__0000000000", nil)
		for _, path := range []string{"/locks", "/leader", "/permits", "/rw"} {
			q := read(f, f.observer, path)
			require.Len(f, q.Contenders, 2, path)
			require.True(f, q.Contenders[0].NotEphemeral, path)
			require.True(f, q.Contenders[0].Holds, path)
			require.False(f, q.Contenders[1].NotEphemeral, path)
		}
	})
}

// A contender that was asked to yield keeps its id behind the request. One that was asked to release has none.
func TestContendersWithRequests(t *testing.T) {
	inBubble(t, func(f *fixture) {
		session := f.server.OpenSession(time.Hour)
		for i, data := range []string{"web-1", "__YIELD__ priority x\nweb-2", "__YIELD__ stay x\n__REVOKE__", "__REVOKE__", "__YIELD__ other"} {
			f.server.Seed(zktest.Znode{Path: fmt.Sprintf("/e/lock-%010d", i), Data: []byte(data), Session: session})
		}
		q := read(f, f.observer, "/e")
		var ids []string
		var revoked []bool
		for _, c := range q.Contenders {
			ids, revoked = append(ids, c.ID), append(revoked, c.Revoked)
		}
		require.Equal(f, []string{"web-1", "web-2", "", "", "__YIELD__ other"}, ids)
		require.Equal(f, []bool{false, false, true, true, false}, revoked)
		require.True(f, inspect.IsContender("lock-0000000001"))
		require.False(f, inspect.IsContender("lock-"))
	})
}
