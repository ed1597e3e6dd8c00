package group_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// referee judges a group by the server's tree alone.
type referee struct {
	b     *bubble.Bubble
	owner map[string]int64 // of the znodes seen, by name
}

// look requires each member's znode to belong to the session of a client that wants the ID.
func (r *referee) look(wanted map[string][]int64) {
	for _, name := range r.b.Srv.Children(path) {
		_, stat, isThere := r.b.Srv.Get(path + "/" + name)
		if !isThere {
			continue
		}
		r.owner[name] = stat.EphemeralOwner
		require.Contains(r.b, wanted[name], stat.EphemeralOwner, "%s belongs to no client that ever had the ID", name)
	}
}

// requireShown requires a list to be the tree.
func (r *referee) requireShown(list []group.Member, why string) {
	var want []string
	for _, name := range r.b.Srv.Children(path) {
		data, stat, _ := r.b.Srv.Get(path + "/" + name)
		if stat.EphemeralOwner != 0 {
			want = append(want, name+"="+string(data))
		}
	}
	slices.Sort(want)
	require.Equal(r.b, want, append([]string(nil), texts(list)...), why)
}

// Members join, change, leave and die while connections break, sessions end, znodes are deleted and servers stop. Watchers on both servers
// follow. At each pause the lists of all watchers are the server's tree, within a session timeout.
//
//nolint:gocognit // a table of what may happen
func TestAttack(t *testing.T) {
	const (
		timeout = 6 * time.Second
		members = 6
		rounds  = 12
		perTurn = 5
	)
	for seed := range uint64(testkit.Shorter(40, 2)) {
		bubble.Run(t, func(b *bubble.Bubble) {
			dice := rand.New(rand.NewPCG(seed, 7))
			judge, wanted := &referee{b: b, owner: map[string]int64{}}, map[string][]int64{}
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			latest := make([]chan []group.Member, 2)
			for i, connect := range []func(...recipes.Option) *recipes.Client{b.Client, b.Troubled} {
				latest[i] = make(chan []group.Member, 1)
				lists := newGroup(b, connect(recipes.WithSessionTimeout(timeout)), "watcher").Watch(ctx)
				go func() { // ends with ctx; keeps the latest list
					for list := range lists {
						select {
						case <-latest[i]:
						default:
						}
						latest[i] <- list
					}
				}()
			}
			clients, groups := make([]*recipes.Client, members), make([]*group.Group, members)
			renew := func(i int) {
				connect := b.Client
				if i%2 == 0 {
					connect = b.Troubled
				}
				clients[i] = connect(recipes.WithSessionTimeout(timeout))
				groups[i] = newGroup(b, clients[i], fmt.Sprintf("m %d%%", i/2)) // two want one ID
			}
			for i := range members {
				renew(i)
			}
			for round := range rounds {
				for range perTurn {
					i := dice.IntN(members)
					switch dice.IntN(8) {
					case 0, 1, 2:
						require.NoError(b, groups[i].Join(fmt.Append(nil, dice.IntN(100))))
					case 3:
						_ = groups[i].Leave() // after a timeout, the deletion is retried
					case 4:
						b.Srv.Disconnect(clients[i].Conn().SessionID())
					case 5:
						b.Srv.Expire(clients[i].Conn().SessionID())
					case 6:
						b.Srv.Delete(path + "/" + groups[i].ID())
					default:
						require.NoError(b, clients[i].Close())
						renew(i)
					}
					bubble.Pass(time.Duration(dice.IntN(int(timeout / 4))))
					for i, client := range clients {
						if session := client.Conn().SessionID(); !slices.Contains(wanted[groups[i].ID()], session) {
							wanted[groups[i].ID()] = append(wanted[groups[i].ID()], session)
						}
					}
					judge.look(wanted)
				}
				bubble.Pass(5 * timeout)
				for i := range latest {
					list := <-latest[i]
					judge.requireShown(list, fmt.Sprintf("seed %d, round %d, watcher %d", seed, round, i))
					latest[i] <- list
				}
			}
		})
	}
}

// The cost of an idle hour: a member reads its znode once per session timeout, a watcher reads the directory and each member
// once, and no client lists or writes. An event costs each watcher a listing and a read, and logs nothing.
//
//nolint:gocognit // one hour, then each event
func TestIdleCost(t *testing.T) {
	const (
		timeout = 30 * time.Second
		many    = 6
	)
	bubble.Run(t, func(b *bubble.Bubble) {
		log := &testkit.Log{}
		opts := []recipes.Option{recipes.WithSessionTimeout(timeout), recipes.WithLogger(log.Logger(slog.LevelInfo))}
		var all []*group.Group
		clients := make([]*recipes.Client, many)
		for i := range clients {
			clients[i] = b.Troubled(opts...)
			all = append(all, joined(b, clients[i], fmt.Sprint("m", i), ""))
		}
		watching := b.Client(opts...)
		lists := newGroup(b, watching, "watcher").Watch(b.Context())
		require.Len(b, <-lists, many)
		bubble.Pass(time.Minute)
		log.Take()

		requests := b.Srv.Observe()
		bubble.Pass(time.Hour)
		counts := map[int64]map[zktest.Op]int{}
		for _, r := range requests.Requests() {
			if counts[r.Session] == nil {
				counts[r.Session] = map[zktest.Op]int{}
			}
			counts[r.Session][r.Op]++
		}
		requests.Stop()
		perHour := int(time.Hour / timeout)
		for _, client := range clients {
			of := counts[client.Conn().SessionID()]
			require.LessOrEqual(b, of[zktest.OpGetData], perHour)
			require.LessOrEqual(b, of[zktest.OpMulti], perHour/20, "audits")
			for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpPing, zktest.OpMulti} {
				delete(of, op)
			}
			require.Empty(b, of, "a member")
		}
		of := counts[watching.Conn().SessionID()]
		require.LessOrEqual(b, of[zktest.OpGetData], many*perHour)
		require.LessOrEqual(b, of[zktest.OpExists], perHour)
		require.LessOrEqual(b, of[zktest.OpMulti], perHour/20, "audits")
		require.Zero(b, of[zktest.OpGetChildren2], "no list")
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpSetData} {
			require.Zero(b, of[op], "a watcher writes nothing")
		}
		require.Empty(b, log.Take(), "an hour has no event")

		for name, event := range map[string]func(){
			"data":  func() { require.NoError(b, all[0].Join([]byte("new"))) },
			"leave": func() { require.NoError(b, all[1].Leave()) },
			"join":  func() { joined(b, clients[2], "another", "") },
		} {
			requests = b.Srv.Observe()
			event()
			<-lists
			bubble.Pass(time.Second)
			n := 0
			for _, r := range requests.Requests() {
				if r.Session == watching.Conn().SessionID() && r.Op != zktest.OpPing {
					n++
				}
			}
			requests.Stop()
			require.LessOrEqual(b, n, 2, name)
			require.Empty(b, log.Take(), name)
		}
		over := b.Outage()
		bubble.Pass(2 * timeout)
		over()
		bubble.Pass(time.Minute)
		lines := log.Take()
		require.LessOrEqual(b, len(lines), many*4, "suspended, session lost and reconnected, but nothing about the group")
		for _, line := range lines {
			require.NotContains(b, line, path)
		}
	})
}
