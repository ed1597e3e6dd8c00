package zkutil

import "github.com/go-zookeeper/zk"

// syncedChildren lists the children of dir as of after a sync. The list is sent as soon as the sync
// was, because requests of one session are answered in order: while the quorum is slow, the list
// would wait for the heartbeats that were sent in between. On another connection than l it counts
// for nothing, because it may have been sent before the sync: see nextSync.
func syncedChildren(conn *zk.Conn, l *line, dir string) ([]string, error) {
	var sent <-chan struct{} // nil on an adopted connection: the list waits for the answer
	if l != nil {
		sent = l.contact.nextSync()
	}
	synced := make(chan error, 1)
	go func() { // ends when zk.Conn answers or loses the connection; joined below
		_, err := conn.Sync(dir)
		synced <- err
	}()
	select {
	case <-sent:
	case err := <-synced: // no sync was sent on l, perhaps
		if err != nil {
			return nil, err
		}
		synced <- nil
	}
	children, _, err := conn.Children(dir)
	if failed := <-synced; failed != nil {
		return nil, failed
	}
	if l != nil && l.isOver() {
		return nil, zk.ErrConnectionClosed
	}
	return children, err
}

// isOver reports whether Close was called, as it is before the next connection is dialled.
func (l *line) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// nextSync is closed when the next sync of the connection is about to be written, anybody's: each
// makes the server catch up. What is asked of zk.Conn after that is written behind it, because
// zk.Conn writes one frame at a time, or on the next connection.
func (c *contact) nextSync() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.syncs
}

// noteSyncLocked tells that a sync is about to be written.
func (c *contact) noteSyncLocked() {
	close(c.syncs)
	c.syncs = make(chan struct{})
}
