package wire

import "github.com/go-zookeeper/zk"

// SyncedChildren lists the children of dir as of after a sync. It sends the list as soon as the sync
// was sent, because a server answers the requests of one session in order. If it waited for the
// answer to the sync, the list would queue behind heartbeats while the quorum is slow. The list is
// refused if it went over another connection than l, where it may have been sent before the sync.
func SyncedChildren(conn *zk.Conn, l *Line, dir string) ([]string, error) {
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
	case err := <-synced: // the sync may have gone over another connection
		if err != nil {
			return nil, err
		}
		synced <- nil
	}
	children, _, err := conn.Children(dir)
	if syncErr := <-synced; syncErr != nil {
		return nil, syncErr
	}
	if l != nil && l.hasClosed() {
		return nil, zk.ErrConnectionClosed
	}
	return children, err
}

// hasClosed reports whether Close was called. It is called before the next connection is dialled.
func (l *Line) hasClosed() bool {
	select {
	case <-l.closeDone:
		return true
	default:
		return false
	}
}

// nextSync returns a channel that is closed when the next sync is about to be written on the
// connection. A sync of another caller will do, because each makes the server catch up. What is
// requested after that is written behind the sync, because zk.Conn writes one frame at a time, or on
// the next connection.
func (c *contact) nextSync() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.syncStarted
}

// announceSyncLocked is called when a sync is about to be written.
func (c *contact) announceSyncLocked() {
	close(c.syncStarted)
	c.syncStarted = make(chan struct{})
}
