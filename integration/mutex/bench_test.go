package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// locker is the compared operation: one contender's lock and unlock.
type locker struct{ lock, unlock func() error }

// peers makes a contender on a path, for each library. The machine is noisy: compare
// the two within one run.
var peers = []struct {
	name string
	new  func(b *testing.B, session int, path string) locker
}{
	{"zkrecipes", newOurs},
	{"zk.Lock", newTheirs},
}

func newOurs(b *testing.B, session int, path string) locker {
	b.Helper()
	client := benchClients(b)[session]
	m, err := mutex.New(client, path)
	require.NoError(b, err)
	var lease *recipes.Lease
	return locker{
		lock: func() (err error) {
			lease, err = m.Acquire(context.Background())
			return err
		},
		unlock: func() error { return lease.Release() },
	}
}

func newTheirs(b *testing.B, session int, path string) locker {
	b.Helper()
	lock := zk.NewLock(benchConns(b)[session], path, zk.WorldACL(zk.PermAll))
	return locker{lock.Lock, lock.Unlock}
}

const benchSessions = 8

var (
	benchMu  sync.Mutex
	ourPool  = map[*testing.B][]*recipes.Client{}
	peerPool = map[*testing.B][]*zk.Conn{}
)

func benchClients(b *testing.B) []*recipes.Client {
	b.Helper()
	benchMu.Lock()
	defer benchMu.Unlock()
	for len(ourPool[b]) < benchSessions {
		client, err := recipes.Connect(b.Context(), ensemble.Shared(b).Servers())
		require.NoError(b, err)
		b.Cleanup(func() {
			benchMu.Lock()
			defer benchMu.Unlock()
			delete(ourPool, b) // the same B runs again, with a larger N
			_ = client.Close()
		})
		ourPool[b] = append(ourPool[b], client)
	}
	return ourPool[b]
}

func benchConns(b *testing.B) []*zk.Conn {
	b.Helper()
	benchMu.Lock()
	defer benchMu.Unlock()
	for len(peerPool[b]) < benchSessions {
		conn, _, err := zk.Connect(ensemble.Shared(b).Servers(), 30*time.Second, zk.WithLogInfo(false))
		require.NoError(b, err)
		b.Cleanup(func() {
			benchMu.Lock()
			defer benchMu.Unlock()
			delete(peerPool, b)
			conn.Close()
		})
		peerPool[b] = append(peerPool[b], conn)
	}
	return peerPool[b]
}

// BenchmarkAcquireRelease makes n contenders on eight sessions take turns; n=1 is uncontended. An op is one
// acquisition and its release.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{1, 2, 8, 64} {
		for _, peer := range peers {
			b.Run(fmt.Sprintf("%d/%s", n, peer.name), func(b *testing.B) {
				path := fmt.Sprintf("/bench-%d", time.Now().UnixNano())
				contenders := make([]locker, n)
				for i := range contenders {
					contenders[i] = peer.new(b, i%benchSessions, path)
				}
				require.NoError(b, contenders[0].lock()) // makes the parents
				require.NoError(b, contenders[0].unlock())
				b.ReportAllocs()
				takeTurns(b, contenders)
			})
		}
	}
}

// takeTurns has the contenders share b.N acquisitions.
func takeTurns(b *testing.B, contenders []locker) {
	b.Helper()
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	b.ResetTimer()
	var group sync.WaitGroup
	for _, c := range contenders {
		group.Go(func() { // ends when no turn is left; joined below
			for range turns {
				if err := c.lock(); err != nil {
					b.Error(err)
					return
				}
				if err := c.unlock(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkReenter is the cost of an acquisition that needs no server.
func BenchmarkReenter(b *testing.B) {
	m, err := mutex.New(benchClients(b)[0], fmt.Sprintf("/bench-%d", time.Now().UnixNano()))
	require.NoError(b, err)
	lease, err := m.Acquire(b.Context())
	require.NoError(b, err)
	defer func() { require.NoError(b, lease.Release()) }()
	b.ReportAllocs()
	for b.Loop() {
		inner, err := m.Acquire(lease.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := inner.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
