package group_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const path = "/services/web"

func newGroup(b *bubble.Bubble, client *recipes.Client, id string) *group.Group {
	b.Helper()
	g, err := group.New(client, path, group.WithID(id))
	require.NoError(b, err)
	return g
}

// joined returns a group that joined and is registered.
func joined(b *bubble.Bubble, client *recipes.Client, id, data string) *group.Group {
	b.Helper()
	g := newGroup(b, client, id)
	require.NoError(b, g.Join([]byte(data)))
	require.NoError(b, g.Await(b.Context()))
	return g
}

// members are the members as texts.
func members(b *bubble.Bubble, g *group.Group) []string {
	b.Helper()
	all, err := g.Members(b.Context())
	require.NoError(b, err)
	return texts(all)
}

func texts(all []group.Member) []string {
	lines := []string{}
	for _, m := range all {
		lines = append(lines, m.ID+"="+string(m.Data))
	}
	return lines
}

// However many reads fail, the error is one line.
func TestMembersErrorIsOneLine(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		for _, id := range []string{"a", "b", "c"} {
			joined(b, b.Client(), id, "")
		}
		observer := newGroup(b, b.Client(), "observer")
		ctx, cancel := context.WithCancel(b.Context())
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData {
				cancel()
				return zktest.Fault{Delay: time.Second}
			}
			return zktest.Fault{}
		})
		_, err := observer.Members(ctx)
		require.EqualError(b, err, "group: members "+path+": context canceled")
	})
}

func TestJoinAndLeave(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		observer := newGroup(b, b.Client(), "observer")
		require.Empty(b, members(b, observer))
		one, two := joined(b, b.Client(), "one", "10.0.0.1"), joined(b, b.Client(), "10.0.0.2:77 é", "")
		require.Equal(b, []string{"10.0.0.2:77 é=", "one=10.0.0.1"}, members(b, observer))
		data, stat, _ := b.Srv.Get(path + "/one") // as of Curator's GroupMember
		require.Equal(b, "10.0.0.1", string(data))
		require.NotZero(b, stat.EphemeralOwner)

		require.NoError(b, one.Join([]byte("10.0.0.9")))
		require.NoError(b, one.Await(b.Context()))
		require.Equal(b, []string{"10.0.0.2:77 é=", "one=10.0.0.9"}, members(b, observer))
		_, after, _ := b.Srv.Get(path + "/one")
		require.Equal(b, stat.Czxid, after.Czxid, "the same znode")

		require.NoError(b, one.Leave())
		require.NoError(b, one.Leave())
		require.ErrorIs(b, one.Await(b.Context()), recipes.ErrNotStarted)
		require.Equal(b, []string{"10.0.0.2:77 é="}, members(b, observer))
		require.NoError(b, one.Join(nil), "it may come back")
		require.NoError(b, one.Await(b.Context()))
		require.NoError(b, one.Leave())
		require.NoError(b, two.Leave())
		require.Empty(b, b.Srv.Children(path))
	})
}

// Leave waits for the deletion of the znode even during another Leave, or after one that timed out.
func TestLeaveTwice(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		g := joined(b, b.Troubled(), "a", "")
		b.Srv.Freeze(b.Srv.Addr())
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- g.Leave() }()
			bubble.Pass(time.Second)
		}
		require.Empty(b, results, "the znode is there")
		for range 2 {
			require.ErrorIs(b, <-results, recipes.ErrNodeNotDeleted)
		}
		b.Srv.Heal()
		require.NoError(b, g.Leave())
		require.Empty(b, b.Srv.Children(path))
		require.NoError(b, g.Leave())
	})
}

// A member is registered again after everything that can happen to its znode and its session.
func TestMemberIsRegisteredAgain(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		observer, client := newGroup(b, b.Client(), "observer"), b.Troubled()
		g := joined(b, client, "one", "data")
		for name, strike := range map[string]func(){
			"deletion":        func() { b.Srv.Delete(path + "/one") },
			"expiry":          func() { b.Srv.Expire(client.Conn().SessionID()) },
			"expiry, unheard": func() { b.ExpireUnheard(client) },
			"wiped":           func() { b.Srv.Delete(path + "/one"); b.Srv.Delete(path) },
			"other data":      func() { b.Srv.Put(path+"/one", []byte("other")) },
			"outage":          func() { over := b.Outage(); bubble.Pass(time.Second); over() },
			"lost event": func() {
				b.Srv.DropEvent(1)
				b.Srv.Delete(path + "/one")
				bubble.Pass(2 * testclient.SessionTimeout)
			},
		} {
			strike()
			bubble.Pass(3 * time.Second)
			require.Equal(b, []string{"one=data"}, members(b, observer), name)
			require.NoError(b, g.Err(), name)
		}
		require.NoError(b, client.Close())
		require.Empty(b, members(b, observer))
		require.ErrorIs(b, g.Join(nil), recipes.ErrClosed)
		require.ErrorIs(b, g.Await(b.Context()), recipes.ErrClosed)
		require.NoError(b, g.Leave())
	})
}

// A restarted process waits until the session of its predecessor expires. It deletes no other client's znode.
func TestIDOfAnotherSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		before := b.Troubled()
		joined(b, before, "one", "before")
		b.Srv.Partition(before.Conn().SessionID())
		again := newGroup(b, b.Client(), "one")
		require.NoError(b, again.Join([]byte("again")))
		bubble.Pass(time.Second)
		require.ErrorIs(b, again.Err(), group.ErrTaken)
		require.Equal(b, []string{"one=before"}, members(b, again))
		require.NoError(b, again.Await(b.Context()))
		require.NoError(b, again.Err())
		require.Equal(b, []string{"one=again"}, members(b, again))
		b.Srv.Heal()
		bubble.Pass(time.Minute)
		require.Equal(b, []string{"one=again"}, members(b, again), "the other one waits now")
		third := newGroup(b, b.Client(), "one")
		require.NoError(b, third.Join([]byte("third")))
		bubble.Pass(time.Second)
		_, stat, _ := b.Srv.Get(path + "/one")
		require.NoError(b, third.Leave())
		_, after, _ := b.Srv.Get(path + "/one")
		require.Equal(b, stat, after, "whoever waits leaves without a trace")
		require.NoError(b, again.Leave())
		bubble.Pass(time.Second)
		require.Equal(b, []string{"one=before"}, members(b, again))
	})
}

// A refusal is an Err, and over when the server permits.
func TestRefusal(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		g := newGroup(b, b.Client(), "one")
		b.Srv.Seed(zktest.Znode{Path: path, ACL: zk.WorldACL(zk.PermRead | zk.PermAdmin)})
		require.NoError(b, g.Join(nil))
		bubble.Pass(time.Second)
		require.ErrorIs(b, g.Err(), zk.ErrNoAuth)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		err := g.Await(ctx)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorIs(b, err, zk.ErrNoAuth)
		_, err = b.Client().Conn().SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(b, err)
		require.NoError(b, g.Await(b.Context()))
		require.NoError(b, g.Err())
		require.NoError(b, g.Leave())
	})
}

// Watch sends the list at each change, of the members and of their data, from before the first one on.
func TestWatch(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		lists := newGroup(b, client, "observer").Watch(ctx)
		next := func() []string { return texts(<-lists) }
		require.Empty(b, next())
		troubled := b.Troubled()
		one := joined(b, troubled, "one", "1")
		require.Equal(b, []string{"one=1"}, next())
		two := joined(b, b.Client(), "two", "2")
		require.Equal(b, []string{"one=1", "two=2"}, next())
		require.NoError(b, two.Join([]byte("22")))
		require.Equal(b, []string{"one=1", "two=22"}, next())
		b.Srv.Put(path+"/config", []byte("persistent"))
		synctest.Wait()
		require.Empty(b, lists)
		b.Srv.Partition(troubled.Conn().SessionID())
		require.Equal(b, []string{"two=22"}, next(), "its session has expired")
		b.Srv.Heal()
		require.Equal(b, []string{"one=1", "two=22"}, next())
		require.NoError(b, one.Leave())
		require.NoError(b, two.Leave())
		bubble.Pass(time.Second)
		require.Empty(b, next(), "a slow reader misses what is over")
		cancel()
		_, isOpen := <-lists
		require.False(b, isOpen)

		lists = newGroup(b, client, "observer").Watch(b.Context())
		require.Empty(b, <-lists)
		require.NoError(b, client.Close())
		_, isOpen = <-lists
		require.False(b, isOpen)
	})
}

// IDs are the names of znodes, as Curator's GroupMember writes and reads them.
func TestIDsAreNames(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		ids := []string{"web 1", "münchen", "100%", "50%25", "a+b&c=d", "host:4711", "…"}
		client := b.Client()
		for _, id := range ids {
			require.Equal(b, id, joined(b, client, id, "").ID())
		}
		require.ElementsMatch(b, ids, b.Srv.Children(path))
		b.Srv.Put(path+"/of curator %C3", nil) // not ephemeral, so no member
		all, err := newGroup(b, b.Client(), "x").Members(b.Context())
		require.NoError(b, err)
		var shown []string
		for _, m := range all {
			shown = append(shown, m.ID)
		}
		require.ElementsMatch(b, ids, shown)

		g, err := group.New(b.Client(recipes.WithID("rack/7/web")), path)
		require.NoError(b, err)
		require.Equal(b, "rack:7:web", g.ID(), "the id of a client may have slashes")
	})
}

// A member whose create reached no server leaves at once, because there is no znode to wait for.
func TestLeaveWithoutAZnode(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		b.Srv.Stop(b.Srv.Addr())
		never, err := recipes.Open([]string{b.Srv.Addr()}, recipes.WithDialer(b.Srv.Dialer()))
		require.NoError(b, err)
		leave := func(client *recipes.Client, after time.Duration, why string) {
			g := newGroup(b, client, why)
			for range 2 {
				require.NoError(b, g.Join(nil))
				bubble.Pass(after)
				start := time.Now()
				require.NoError(b, g.Leave(), why)
				require.Equal(b, start, time.Now(), why)
			}
		}
		leave(never, 0, "never connected")
		leave(never, time.Minute, "never connected for a minute")
		require.NoError(b, never.Close())

		require.NoError(b, b.Srv.Restart(b.Srv.Addr()))
		client := b.Troubled(recipes.WithSessionTimeout(time.Hour))
		over := b.Outage()
		leave(client, time.Minute, "in an outage")
		over()
		bubble.Pass(time.Minute)
		require.Empty(b, b.Srv.Children(path))

		g := joined(b, client, "registered", "")
		over = b.Outage()
		require.ErrorIs(b, g.Leave(), recipes.ErrNodeNotDeleted, "this one has a znode")
		over()
		require.NoError(b, g.Leave())
	})
}

func TestInvalidArguments(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		log := b.Srv.Observe()
		for _, id := range []string{"", ".", "..", "lock-0000000000", "a/b", "/", strings.Repeat("x", 1025)} {
			_, err := group.New(client, path, group.WithID(id))
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, id)
		}
		_, err := group.New(nil, path)
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		_, err = group.New(client, "relative")
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		g, err := group.New(client, path)
		require.NoError(b, err)
		require.NotContains(b, g.ID(), "/")
		require.ErrorIs(b, g.Join(make([]byte, 512<<10+1)), recipes.ErrInvalidArgument)
		require.Zero(b, log.Count(zktest.OpAny))
	})
}

// Faults of all kinds hit the requests of five members, which join, change their data and leave. Afterwards, the joined members
// are registered once each with their latest data, and no others.
//
//nolint:gocognit // a table of what may happen
func TestFaultSchedules(t *testing.T) {
	for seed := range uint64(testkit.Shorter(40, 5)) {
		bubble.Run(t, func(b *bubble.Bubble) {
			dice := rand.New(rand.NewPCG(seed, 0))
			const clients = 5
			var groups []*group.Group
			var connected []*recipes.Client
			want := make([]string, clients)
			for i := range clients {
				client := b.Client()
				connected = append(connected, client)
				groups = append(groups, newGroup(b, client, fmt.Sprint("m", i)))
			}
			losses := []zktest.Loss{zktest.NothingLost, zktest.NothingLost, zktest.NothingLost, zktest.ReplyLost, zktest.RequestLost}
			draws := make(chan int, 1)
			draws <- 0
			calm := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				n := <-draws
				draws <- n + 1
				if r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
					return zktest.Fault{}
				}
				return zktest.Fault{Lost: losses[(uint64(n)*2654435761+seed)>>3%uint64(len(losses))]}
			})
			for range 40 {
				i := dice.IntN(clients)
				switch dice.IntN(6) {
				case 0, 1:
					want[i] = fmt.Sprint(dice.IntN(1000))
					require.NoError(b, groups[i].Join([]byte(want[i])))
				case 2:
					want[i] = ""
					if err := groups[i].Leave(); err != nil {
						require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
					}
				case 3:
					b.Srv.Delete(fmt.Sprint(path, "/m", i))
				case 4:
					if id := connected[i].Conn().SessionID(); id != 0 {
						b.Srv.Expire(id)
					}
				default:
					bubble.Pass(time.Duration(dice.IntN(int(5 * time.Second))))
				}
			}
			calm()
			bubble.Pass(2 * time.Minute)
			expected := []string{}
			for i, data := range want {
				if data != "" {
					expected = append(expected, fmt.Sprintf("m%d=%s", i, data))
				}
			}
			require.Equal(b, expected, members(b, newGroup(b, b.Client(), "observer")), "seed %d", seed)
		})
	}
}

// Leave returns only once no znode of an earlier membership is left, even if the latest membership never got that far.
func TestLeaveAfterALeaveThatWasNotOver(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		g := joined(b, b.Client(), "a", "1")
		heal := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(b, g.Leave(), recipes.ErrNodeNotDeleted)
		for range 2 {
			require.NoError(b, g.Join([]byte("2")))
			bubble.Pass(time.Second)
			require.ErrorIs(b, g.Leave(), recipes.ErrNodeNotDeleted)
			require.Len(b, b.Srv.Children(path), 1)
		}
		heal()
		bubble.Pass(time.Minute)
		require.NoError(b, g.Leave())
		require.Empty(b, b.Srv.Children(path))
		require.NoError(b, g.Join([]byte("3")))
		require.NoError(b, g.Await(b.Context()))
		require.NoError(b, g.Leave())
		require.Empty(b, b.Srv.Children(path))
	})
}

// A member that joins again while it leaves forgets the earlier memberships and their data after the deletion of their
// znodes.
func TestEarlierMembershipsAreForgotten(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		g := joined(b, b.Client(), "a", "1")
		b.Srv.Delay(zktest.OpDelete, 10*time.Millisecond)
		const rounds, size = 50, 256 << 10
		before := heapInUse()
		for range rounds {
			left := make(chan error, 1)
			go func() { left <- g.Leave() }() // ends with the delete
			bubble.Pass(time.Millisecond)
			require.NoError(b, g.Join(make([]byte, size)))
			require.NoError(b, <-left)
			require.NoError(b, g.Await(b.Context()))
		}
		require.Less(b, heapInUse(), before+rounds*size/2)
		require.NoError(b, g.Leave())
	})
}

// heapInUse returns the bytes of all reachable objects.
func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// The directory is created while Watch looks for it: after the list that misses it, and before the watch on its creation. Watch reads it
// at once, without a pause of the retry policy.
func TestWatchOfADirectoryThatIsCreatedMeanwhile(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: time.Minute, MaxInterval: time.Minute}))
		other := b.Srv.OpenSession(time.Hour)
		isCreated := false
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpExists && r.Path == path && !isCreated {
				isCreated = true
				b.Srv.Seed(zktest.Znode{Path: path + "/web-1", Data: []byte("1"), Session: other})
			}
			return zktest.Fault{}
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
		defer cancel()
		require.Equal(b, []string{"web-1=1"}, texts(<-newGroup(b, client, "web-2").Watch(ctx)))
		require.Equal(b, began, time.Now())
		require.True(b, isCreated)
	})
}

// The lists of a client that is closed end at once, and no member joins there.
func TestGroupOfAClosedClient(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		g, err := group.New(client, "/group", group.WithID("a"))
		require.NoError(b, err)
		watched := g.Watch(b.Context())
		require.Empty(b, <-watched)
		require.NoError(b, client.Close())
		for _, lists := range []<-chan []group.Member{watched, g.Watch(b.Context())} {
			_, isOpen := <-lists
			require.False(b, isOpen)
		}
		require.ErrorIs(b, g.Join(nil), recipes.ErrClosed)
		require.ErrorIs(b, g.Await(b.Context()), recipes.ErrClosed)
		_, err = g.Members(b.Context())
		require.ErrorIs(b, err, recipes.ErrClosed)
	})
}
