package peer

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// quiet is a logger that drops the output of zk.Conn.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect returns a plain connection with a session.
func connect(ctx context.Context, address string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{address}, SessionTimeout, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("peer: no session: %w", context.Cause(ctx))
		}
	}
}

// zkLockSession is a session of go-zookeeper's own lock.
type zkLockSession struct{ conn *zk.Conn }

func openZKLock(ctx context.Context, address string) (Session, error) {
	conn, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return zkLockSession{conn}, nil
}

func (s zkLockSession) Close() error {
	s.conn.Close()
	return nil
}

func (s zkLockSession) Contender(_ context.Context, path string) (Contender, error) {
	return zkLockContender{zk.NewLock(s.conn, path, zk.WorldACL(zk.PermAll))}, nil
}

type zkLockContender struct{ lock *zk.Lock }

func (c zkLockContender) Lock(context.Context) error { return c.lock.Lock() }
func (c zkLockContender) Unlock() error              { return c.lock.Unlock() }
