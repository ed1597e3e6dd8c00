package rwlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Readers share, a writer is alone, and both are granted in the order of their numbers.
func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		otherRead, otherWrite := locks.ReadWrite(b, b.Client())
		first, second := bubble.Acquire(b, read.Acquire), bubble.Acquire(b, otherRead.Acquire)
		writing := bubble.Waiting(b, b.Context(), write.Acquire)
		late := bubble.Waiting(b, b.Context(), otherRead.Acquire)
		_, err := otherRead.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "a try overtakes no waiting writer")
		b.Stands(first, second)

		b.Release(first)
		bubble.Pass(bubble.Moment)
		require.Empty(b, writing)
		b.Release(second)
		writer := bubble.Granted(b, writing)
		for _, try := range []*rwlock.Lock{read, otherRead, write, otherWrite} {
			_, err := try.TryAcquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
		}
		require.Empty(b, late)
		require.Greater(b, writer.FencingToken(), second.FencingToken())
		b.Release(writer)
		reader := bubble.Granted(b, late)
		require.Greater(b, reader.FencingToken(), writer.FencingToken())
		b.Release(reader)
		require.Empty(b, b.Queue(locks.Path))
	})
}

// The names are Curator's, and so is the data.
func TestZnodes(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client(), rwlock.WithID("me"), rwlock.WithName("stock"))
		writer := bubble.Acquire(b, write.Acquire)
		under := bubble.Acquire(b, func(context.Context) (*recipes.Lease, error) { return read.Acquire(writer.Context()) })
		b.Release(writer)
		reader := bubble.Acquire(b, read.Acquire)
		for lease, name := range map[*recipes.Lease]string{
			writer: "-__WRIT__0000000000", under: "-__READ__0000000000", reader: "-__READ__0000000002", // the server counts every child
		} {
			require.Regexp(b, `^/locks/a/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`+name+`$`, lease.Path())
		}
		data, stat, found := b.Srv.Get(under.Path())
		require.True(b, found)
		require.Equal(b, "me", string(data))
		require.NotZero(b, stat.EphemeralOwner)
		b.Release(under, reader)
	})
}

// Curator's testGetParticipantNodes: each lock shows its own contenders.
func TestParticipants(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client(), rwlock.WithID("first"))
		otherRead, otherWrite := locks.ReadWrite(b, b.Client(), rwlock.WithID("second"))
		none, err := read.Participants(b.Context())
		require.NoError(b, err)
		require.Empty(b, none)

		one, two := bubble.Acquire(b, read.Acquire), bubble.Acquire(b, otherRead.Acquire)
		writing := bubble.Waiting(b, b.Context(), otherWrite.Acquire)
		late := bubble.Waiting(b, b.Context(), read.Acquire)
		queue := b.Queue(locks.Path)
		b.Srv.Put(locks.Path+"/config", nil)
		readers, err := otherRead.Participants(b.Context())
		require.NoError(b, err)
		require.Equal(b, []string{one.Path(), two.Path(), queue[len(queue)-1]}, paths(readers))
		for i, want := range []recipes.Participant{{ID: "first", Leader: true}, {ID: "second", Leader: true}, {ID: "first"}} {
			require.Equal(b, want.ID, readers[i].ID)
			require.Equal(b, want.Leader, readers[i].Leader)
		}
		writers, err := write.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, writers, 1)
		require.Equal(b, "second", writers[0].ID)
		require.False(b, writers[0].Leader, "it waits for two readers")

		b.Release(one, two)
		writer := bubble.Granted(b, writing)
		writers, err = write.Participants(b.Context())
		require.NoError(b, err)
		require.True(b, writers[0].Leader)
		b.Release(writer)
		b.Release(bubble.Granted(b, late))
	})
}

func TestBadInput(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		log := b.Srv.Observe()
		for name, c := range map[string]struct {
			client *recipes.Client
			path   string
			opts   []rwlock.Option
		}{
			"no client":        {nil, locks.Path, nil},
			"relative path":    {client, "locks/a", nil},
			"empty path":       {client, "", nil},
			"trailing slash":   {client, locks.Path + "/", nil},
			"nil option":       {client, locks.Path, []rwlock.Option{nil}},
			"long id":          {client, locks.Path, []rwlock.Option{rwlock.WithID(strings.Repeat("x", 64<<10+1))}},
			"empty name":       {client, locks.Path, []rwlock.Option{rwlock.WithName("")}},
			"long name":        {client, locks.Path, []rwlock.Option{rwlock.WithName(strings.Repeat("x", 129))}},
			"nil listener":     {client, locks.Path, []rwlock.Option{rwlock.WithRevocationListener(nil)}},
			"name of no UTF-8": {client, locks.Path, []rwlock.Option{rwlock.WithName("\xff")}},
		} {
			l, err := rwlock.New(c.client, c.path, c.opts...)
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, name)
			require.ErrorContains(b, err, "rwlock: new", name)
			require.Nil(b, l, name)
		}
		read, write := locks.ReadWrite(b, client)
		require.ErrorIs(b, read.Do(b.Context(), nil), recipes.ErrInvalidArgument)
		require.ErrorIs(b, write.Do(b.Context(), nil), recipes.ErrInvalidArgument)
		require.Empty(b, bubble.Requests(log))
	})
}

// The path of a mutex is refused, because the two locks would not see each other. Anything else below
// the path is left alone.
func TestOtherLayout(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		other, err := mutex.New(client, locks.Path)
		require.NoError(b, err)
		held := bubble.Acquire(b, other.Acquire)
		read, write := locks.ReadWrite(b, client)
		for _, acquire := range []func(context.Context) (*recipes.Lease, error){read.Acquire, write.Acquire, read.TryAcquire, write.TryAcquire} {
			_, err := acquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrOtherLayout)
			require.ErrorContains(b, err, held.Path())
		}
		require.Equal(b, []string{held.Path()}, b.Queue(locks.Path), "nothing is left")
		b.Release(held)
		b.Srv.Put(locks.Path+"/lock-", nil)
		b.Srv.Put(locks.Path+"/config", nil)
		b.Release(bubble.Acquire(b, write.Acquire))
	})
}

// A path that no client of this recipe used yet costs one more listing, once for both locks.
func TestLayoutIsCheckedOnce(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		b.Release(bubble.Acquire(b, write.Acquire))
		log := b.Srv.Observe()
		b.Release(bubble.Acquire(b, write.Acquire))
		b.Release(bubble.Acquire(b, read.Acquire))
		once := []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2, zktest.OpDelete}
		require.ElementsMatch(b, append(once, once...), bubble.Requests(log))

		refused := b.Client()
		read, _ = locks.ReadWrite(b, refused)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		_, err := read.Acquire(ctx)
		var wait *recipes.WaitError
		require.ErrorAs(b, err, &wait)
		require.ErrorIs(b, err, context.Canceled)
	})
}

// A writer waits for a reader, for any number of readers of its client in between.
func TestWriterBehindAReader(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		reader, _ := locks.ReadWrite(b, b.Client())
		held := bubble.Acquire(b, reader.Acquire)
		read, write := locks.ReadWrite(b, b.Client())
		for range 8 {
			b.Release(bubble.Acquire(b, read.Acquire))
			bubble.Pass(bubble.Moment)
		}
		_, err := write.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		b.Release(held)
		b.Release(bubble.Acquire(b, write.Acquire))
	})
}

// A writer waits for another writer, even if its client had a mutex on the same path. The two locks don't see each other.
func TestWriterBesideAMutex(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		_, write := locks.ReadWrite(b, client)
		b.Release(bubble.Acquire(b, write.Acquire)) // which checked the layout
		_, other := locks.ReadWrite(b, b.Client())
		held := bubble.Acquire(b, other.Acquire)
		m, err := mutex.New(client, locks.Path)
		require.NoError(b, err)
		for range 8 {
			b.Release(bubble.Acquire(b, m.Acquire))
			bubble.Pass(bubble.Moment)
		}
		_, err = write.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		b.Release(held)
	})
}

// The guard of a transaction holds for readers as well.
func TestCheck(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		read, _ := locks.ReadWrite(b, client)
		lease := bubble.Acquire(b, read.Acquire)
		create := &zk.CreateRequest{Path: "/seen", Acl: zk.WorldACL(zk.PermAll)}
		_, err := client.Conn().Multi(lease.Check(), create)
		require.NoError(b, err)
		b.Release(lease)
		_, err = client.Conn().Multi(lease.Check(), create)
		require.ErrorIs(b, err, zk.ErrNoNode)
	})
}

func TestDo(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		read, write := locks.ReadWrite(b, b.Client())
		require.NoError(b, write.Do(b.Context(), func(ctx context.Context, outer *recipes.Lease) error {
			return read.Do(ctx, func(ctx context.Context, inner *recipes.Lease) error {
				require.Equal(b, outer.FencingToken(), inner.FencingToken())
				require.Len(b, b.Queue(locks.Path), 2)
				return write.Do(ctx, func(context.Context, *recipes.Lease) error { return nil })
			})
		}))
		require.Empty(b, b.Queue(locks.Path))
	})
}
