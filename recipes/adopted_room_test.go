package recipes_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// adopted returns a client of a connection that it does not own.
func adopted(b *bubble.Bubble, opts ...recipes.Option) *recipes.Client {
	b.Helper()
	conn, events, err := zk.Connect([]string{b.Srv.Addr()}, 30*time.Second, zk.WithDialer(b.Srv.Dialer()), zk.WithLogger(testkit.Quiet{}))
	require.NoError(b, err)
	client, err := recipes.NewClient(conn, events, append(opts, recipes.WithSessionTimeout(30*time.Second))...)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, client.Close())
		conn.Close()
	})
	return client
}

// On an adopted connection, whose creates don't tell the owner, a release that gives a place away costs six requests: the
// deletion, the look at the queue of whoever is next, and for the place a create, two lists, and a look at the new znode.
func TestWaitersBeyondThePlacesOnAnAdoptedConnection(t *testing.T) {
	const beyond, each = 40, 6
	bubble.Run(t, func(b *bubble.Bubble) {
		m := mutexOn(b, adopted(b), "/m")
		lease := bubble.Acquire(b, m.Acquire)
		c := newCrowd(b)
		c.start(b.Context(), places+beyond, m.Acquire)
		b.Srv.Delay(zktest.OpAny, time.Millisecond)
		log := b.Srv.Observe()
		for i := range places + beyond {
			b.Release(lease)
			g := c.next()
			require.NoError(b, g.err)
			require.Equal(b, i, g.number, "in the order in which they came")
			lease = g.lease
			if i == beyond {
				bubble.Pass(time.Second)
				require.LessOrEqual(b, len(bubble.Requests(log)), each*(beyond+1))
			}
		}
		b.Release(lease)
		require.Empty(b, b.Srv.Children("/m"))
	})
}

// Contenders that join together on an adopted connection each make one znode: a list that was sent before the create of one of them
// does not pass for its queue.
func TestJoiningTogetherOnAnAdoptedConnection(t *testing.T) {
	const many = 100
	bubble.Run(t, func(b *bubble.Bubble) {
		client := adopted(b)
		m := mutexOn(b, client, "/m")
		b.Release(bubble.Acquire(b, m.Acquire)) // makes the parent
		b.Srv.Delay(zktest.OpAny, time.Millisecond)
		log := b.Srv.Observe()
		granted := make(chan *recipes.Lease, many)
		for range many {
			go func() { // ends with its acquisition
				lease, err := m.Acquire(b.Context())
				if err != nil {
					b.Errorf("%v", err)
				}
				granted <- lease
			}()
		}
		for range many {
			b.Release(<-granted)
		}
		creates := 0
		for _, op := range bubble.Requests(log) {
			if op == zktest.OpCreate {
				creates++
			}
		}
		require.Equal(b, many, creates)
	})
}
