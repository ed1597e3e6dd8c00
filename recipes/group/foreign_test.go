package group_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Two groups of one client with the same ID do not share a znode. The second waits, with ErrTaken, until the first leaves.
func TestIDOfTheSameClient(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		first := joined(b, client, "one", "first")
		second, third := newGroup(b, client, "one"), newGroup(b, client, "one")
		require.NoError(b, second.Join([]byte("second")))
		require.NoError(b, third.Join([]byte("third")))
		bubble.Pass(time.Second)
		require.ErrorIs(b, second.Err(), group.ErrTaken)
		require.NoError(b, first.Err())
		require.Equal(b, []string{"one=first"}, members(b, first))
		_, stat, _ := b.Srv.Get(path + "/one")
		require.NoError(b, third.Leave())
		bubble.Pass(time.Minute)
		_, after, _ := b.Srv.Get(path + "/one")
		require.Equal(b, stat, after, "a member that waits leaves the znode of the other alone")
		require.NoError(b, first.Leave())
		require.NoError(b, second.Await(b.Context()))
		require.NoError(b, second.Err())
		require.Equal(b, []string{"one=second"}, members(b, first))
		require.NoError(b, second.Leave())
		require.Empty(b, b.Srv.Children(path))
	})
}

// A member that leaves during its create does not delete the znode of the client's next member.
func TestIDOfTheSameClientAfterALateCreate(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		joined(b, b.Client(), "other", "")
		first, second := newGroup(b, client, "one"), newGroup(b, client, "one")
		calm := b.Srv.Delay(zktest.OpCreate, time.Second, client.Conn().SessionID())
		require.NoError(b, first.Join([]byte("first")))
		bubble.Pass(100 * time.Millisecond)
		left := make(chan error, 1)
		go func() { left <- first.Leave() }()
		bubble.Pass(100 * time.Millisecond)
		calm()
		require.NoError(b, second.Join([]byte("second")))
		require.NoError(b, <-left)
		require.NoError(b, second.Await(b.Context()))
		_, stat, _ := b.Srv.Get(path + "/one")
		bubble.Pass(time.Minute)
		_, after, _ := b.Srv.Get(path + "/one")
		require.Equal(b, stat, after)
		require.Equal(b, []string{"one=second", "other="}, members(b, first))
	})
}

// Znodes of other programs are no members: contenders for a lock on the path, containers, and all that do not end with a session.
func TestForeignZnodes(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		g := joined(b, b.Client(), "one", "1")
		lists := g.Watch(b.Context())
		require.Equal(b, []string{"one=1"}, texts(<-lists))
		conn := b.Client().Conn()
		for _, name := range []string{"_c_01234567-89ab-cdef-0123-456789abcdef-lock-", "_c_01234567-89ab-cdef-0123-456789abcdef-latch-"} {
			_, err := conn.Create(path+"/"+name, []byte("x"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(b, err)
		}
		_, err := conn.CreateContainer(path+"/container", []byte("x"), zk.FlagContainer, zk.WorldACL(zk.PermAll))
		require.NoError(b, err)
		_, err = conn.Create(path+"/config", []byte("x"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(b, err)
		bubble.Pass(time.Second)
		require.Empty(b, lists)
		require.Equal(b, []string{"one=1"}, members(b, g))
	})
}

// A znode of the member's name that is not ephemeral is not another member. It stays, and Err says so.
func TestIDOfAZnodeThatIsNotEphemeral(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		b.Srv.Put(path+"/one", []byte("persistent"))
		g := newGroup(b, b.Client(), "one")
		require.NoError(b, g.Join([]byte("1")))
		bubble.Pass(time.Second)
		require.ErrorIs(b, g.Err(), recipes.ErrNotEphemeral)
		require.ErrorContains(b, g.Err(), path+"/one")
		b.Srv.Delete(path + "/one")
		require.NoError(b, g.Await(b.Context()))
	})
}

// A client has room for some thousands of members. One that has no room is not silent: Err is ErrSessionFull, until another leaves.
func TestMembersOfOneClient(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const fit = 600
		size := len(path+"/m000") + 4
		client := b.Client(recipes.WithMaxSessionBytes(fit * size))
		var all []*group.Group
		for i := range fit {
			all = append(all, newGroup(b, client, fmt.Sprintf("m%03d", i)))
			require.NoError(b, all[i].Join(nil))
		}
		for _, g := range all {
			require.NoError(b, g.Await(b.Context()))
		}
		last := newGroup(b, client, "last")
		require.NoError(b, last.Join(nil))
		bubble.Pass(time.Second)
		require.ErrorIs(b, last.Err(), recipes.ErrSessionFull)
		require.NoError(b, all[0].Leave())
		require.NoError(b, last.Await(b.Context()))
		require.Len(b, members(b, last), fit)
	})
}

// The log has each refusal of the server once, also of calls without a caller to return an error to.
func TestRefusalsAreLogged(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		var log testkit.Log
		client := b.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)))
		g := joined(b, client, "one", "1")
		_, err := client.Conn().SetACL(path, zk.WorldACL(zk.PermAdmin), -1)
		require.NoError(b, err)
		lists := newGroup(b, client, "observer").Watch(b.Context())
		require.ErrorIs(b, g.Leave(), recipes.ErrNodeNotDeleted)
		bubble.Pass(5 * time.Minute)
		require.Equal(b, 1, strings.Count(log.String(), "can't read the members; retrying"), log.String())
		require.Equal(b, 1, strings.Count(log.String(), "delete failed; retrying"), log.String())
		require.Empty(b, lists)
		_, err = client.Conn().SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(b, err)
		bubble.Pass(time.Minute)
		require.Empty(b, <-lists)
		require.Empty(b, b.Srv.Children(path))
	})
}
