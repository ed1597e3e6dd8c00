package group_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Two groups of each of two clients want one ID, while faults of all kinds hit their requests. In the end one of the joined
// groups is registered, with its data, or none if all left.
//
//nolint:gocognit // a table of what may happen
func TestFaultSchedulesWithOneID(t *testing.T) {
	for seed := range uint64(testkit.Shorter(30, 5)) {
		bubble.Run(t, func(b *bubble.Bubble) {
			dice := rand.New(rand.NewPCG(seed, 1))
			var groups []*group.Group
			var want [4]bool
			clients := []func() int64{}
			for range 2 {
				client := b.Client()
				clients = append(clients, func() int64 { return client.Conn().SessionID() })
				groups = append(groups, newGroup(b, client, "one"), newGroup(b, client, "one"))
			}
			losses := []zktest.Loss{zktest.NothingLost, zktest.NothingLost, zktest.NothingLost, zktest.ReplyLost, zktest.RequestLost}
			draws := make(chan uint64, 1)
			draws <- 0
			calm := b.Srv.Inject(func(r zktest.Request) zktest.Fault {
				n := <-draws
				draws <- n + 1
				if r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
					return zktest.Fault{}
				}
				return zktest.Fault{Lost: losses[(n*2654435761+seed)>>3%uint64(len(losses))]}
			})
			for range 40 {
				i := dice.IntN(len(groups))
				switch dice.IntN(6) {
				case 0, 1:
					want[i] = true
					require.NoError(b, groups[i].Join(fmt.Append(nil, i)))
				case 2:
					want[i] = false
					_ = groups[i].Leave() // after a timeout, the deletion is retried
				case 3:
					b.Srv.Delete(path + "/one")
				case 4:
					if id := clients[i/2](); id != 0 {
						b.Srv.Expire(id)
					}
				default:
					bubble.Pass(time.Duration(dice.IntN(int(5 * time.Second))))
				}
			}
			calm()
			bubble.Pass(5 * time.Minute)
			var expected []string
			for i, isIn := range want {
				if isIn {
					expected = append(expected, fmt.Sprint("one=", i))
				}
			}
			all := members(b, groups[0])
			if len(expected) == 0 {
				require.Empty(b, all, "seed %d", seed)
				return
			}
			require.Len(b, all, 1, "seed %d", seed)
			require.Contains(b, expected, all[0], "seed %d", seed)
		})
	}
}

// The answer to the create is lost, and the next server is behind the one that executed it, until a sync. A member that leaves meanwhile
// leaves no znode.
func TestLeaveOnAServerThatIsBehind(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		b.Srv.Put(path, nil)
		isBehind := false
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Op == zktest.OpCreate && !isBehind:
				isBehind = true
				time.AfterFunc(0, func() { b.Srv.Stop(b.Srv.Addr()) })
				return zktest.Fault{Lost: zktest.ReplyLost}
			case r.Op == zktest.OpSync:
				isBehind = false
			case r.Op == zktest.OpGetData && isBehind:
				return zktest.Fault{Refusal: zktest.RefuseNoNode}
			}
			return zktest.Fault{}
		})
		g := newGroup(b, b.Troubled(), "one")
		require.NoError(b, g.Join(nil))
		bubble.Pass(time.Second)
		require.True(b, isBehind)
		require.Equal(b, []string{"one"}, b.Srv.Children(path))
		left := make(chan error, 1)
		go func() { left <- g.Leave() }() // joined below
		bubble.Pass(time.Second)
		require.NoError(b, b.Srv.Restart(b.Srv.Addr()))
		require.NoError(b, <-left)
		require.Empty(b, b.Srv.Children(path))
	})
}

// The server answers a create after its member left, and refuses both deletions that follow for a while: that of the member, and that of
// the abandoned create. The second deletion may be minutes behind the first, and does not hit the znode of the next member.
func TestNextMemberKeepsItsZnode(t *testing.T) {
	for range testkit.Shorter(30, 10) { // the pauses between the attempts are random
		bubble.Run(t, func(b *bubble.Bubble) {
			b.Srv.Put(path, nil)
			client := b.Client()
			undelay := b.Srv.Inject(func(r zktest.Request) (f zktest.Fault) {
				if r.Op == zktest.OpCreate {
					f.Delay = time.Second
				}
				return f
			})
			allow := b.Srv.Inject(func(r zktest.Request) (f zktest.Fault) {
				if r.Op == zktest.OpDelete {
					f.Refusal = zktest.RefuseNoAuth
				}
				return f
			})
			former, next := newGroup(b, client, "one"), newGroup(b, client, "one")
			require.NoError(b, former.Join(nil))
			bubble.Pass(time.Second / 2)
			undelay()
			require.ErrorIs(b, former.Leave(), recipes.ErrNodeNotDeleted)
			require.NoError(b, next.Join(nil))
			bubble.Pass(2 * time.Minute)
			allow()
			require.NoError(b, next.Await(b.Context()))
			_, registered, _ := b.Srv.Get(path + "/one")
			bubble.Pass(2 * time.Minute)
			_, stat, _ := b.Srv.Get(path + "/one")
			require.Equal(b, registered.Czxid, stat.Czxid)
		})
	}
}

// The session of a member ends while the member changes its data, and a member of another client takes its place. The change does not hit
// the znode of the successor, which has the same version.
func TestChangeOfDataDoesNotHitTheSuccessor(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		former := joined(b, client, "one", "old")
		next := newGroup(b, b.Client(), "one")
		require.NoError(b, next.Join([]byte("next")))
		bubble.Pass(bubble.Moment)
		require.ErrorIs(b, next.Err(), group.ErrTaken)
		id := client.Conn().SessionID()
		b.Srv.Inject(func(r zktest.Request) (f zktest.Fault) {
			if r.Op == zktest.OpSetData && r.Session == id {
				b.Srv.Partition(id)
			}
			return f
		})
		require.NoError(b, former.Join([]byte("new")))
		bubble.Pass(bubble.Moment)
		b.Srv.Expire(id)
		require.NoError(b, next.Await(b.Context()))
		log := b.Srv.Observe()
		b.Srv.Heal()
		bubble.Pass(time.Minute)
		require.ErrorIs(b, former.Err(), group.ErrTaken)
		require.Equal(b, []string{"one=next"}, members(b, next))
		require.Empty(b, log.Requests(zktest.OpSetData))
	})
}
