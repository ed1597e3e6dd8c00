package others

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// redsyncSession is a client of one Redis. Nothing survives the loss of that server, unlike with the algorithm for
// several servers that gave redsync its name. One server is the common use.
type redsyncSession struct {
	client *redis.Client
	locks  *redsync.Redsync
}

// OpenRedsync connects to one server.
func OpenRedsync(ctx context.Context, address string) (peer.Session, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return redsyncSession{client, redsync.New(goredis.NewPool(client))}, nil
}

func (s redsyncSession) Close() error { return s.client.Close() }

// Contender returns a lock with redsync's own pauses between two attempts, 50 to 250 ms, that never gives up.
func (s redsyncSession) Contender(_ context.Context, path string) (peer.Contender, error) {
	return redsyncContender{s.locks.NewMutex(path, redsync.WithExpiry(peer.SessionTimeout), redsync.WithTries(math.MaxInt))}, nil
}

type redsyncContender struct{ mutex *redsync.Mutex }

func (c redsyncContender) Lock(ctx context.Context) error { return c.mutex.LockContext(ctx) }

func (c redsyncContender) Unlock() error {
	ok, err := c.mutex.Unlock()
	if err == nil && !ok {
		err = errors.New("others: the lock was not held any more")
	}
	return err
}

// Peers returns the peers of this package.
func Peers() []peer.Peer {
	return []peer.Peer{{Name: peer.Etcd, Open: OpenEtcd}, {Name: peer.Redsync, Open: OpenRedsync}}
}
