package snippets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// writeReport writes data in ZooKeeper if the lease is still held.
func writeReport(client *recipes.Client, lease *recipes.Lease, data []byte) error {
	_, err := client.Conn().Multi(lease.Check(), &zk.SetDataRequest{Path: "/report", Data: data, Version: -1})
	return err
}

// follow calls apply with the content of a znode, now and after each change, until ctx ends.
func follow(ctx context.Context, conn *zk.Conn, path string, apply func(data []byte)) error {
	for {
		data, _, changed, err := conn.GetW(path)
		switch {
		case err == nil:
			apply(data)
		case errors.Is(err, zk.ErrNoNode):
			var exists bool
			if exists, _, changed, err = conn.ExistsW(path); err == nil && exists {
				continue // created in between
			}
		}
		if err != nil {
			return err // zk.ErrConnectionClosed, zk.ErrNoServer: pause, and call follow again
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed: // also after the loss of a session, which ends all watches: read again
		}
	}
}

// waitOnBarrier returns once the znode at path is deleted.
func waitOnBarrier(ctx context.Context, conn *zk.Conn, path string) error {
	for {
		_, _, changed, err := conn.GetW(path) // unlike ExistsW, leaves no watch behind if there is no znode
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// add adds n to a counter in the format of DistributedAtomicLong: eight bytes, big-endian.
func add(conn *zk.Conn, path string, n int64) (int64, error) {
	for {
		data, stat, err := conn.Get(path)
		if err != nil {
			return 0, err
		}
		if len(data) != 8 {
			return 0, fmt.Errorf("no counter at %s", path)
		}
		sum := int64(binary.BigEndian.Uint64(data)) + n
		_, err = conn.Set(path, binary.BigEndian.AppendUint64(nil, uint64(sum)), stat.Version)
		if !errors.Is(err, zk.ErrBadVersion) { // on a conflict, try again
			return sum, err // after zk.ErrConnectionClosed, it is unknown whether n was added
		}
	}
}
