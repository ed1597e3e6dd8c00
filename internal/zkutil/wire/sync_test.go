package wire

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// SyncedChildren may take another caller's sync for its own and send the list before its own sync. If
// the connection ends before that, zk.Conn sends both on the next connection, whose server has not
// caught up when it lists.
func TestListOfAnotherConnectionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put("/m", nil)
		dial := make(chan struct{}, 1)
		dial <- struct{}{}
		w := New(t.Context(), Config{Dialer: func(network, address string, timeout time.Duration) (net.Conn, error) {
			<-dial
			return srv.Dialer()(network, address, timeout)
		}}, &testOwner{period: time.Second, patience: 10 * time.Second})
		conn, events, err := zk.Connect(srv.Addrs(), 6*time.Second, zk.WithDialer(w.Dial), zk.WithHostProvider(w.hosts), zk.WithLogInfo(false))
		require.NoError(t, err)
		defer func() {
			conn.Close()
			w.Close()
		}()
		for event := range events {
			if event.State == zk.StateHasSession {
				break
			}
		}
		l := w.Line()
		l.contact.mu.Lock()
		close(l.contact.syncStarted) // the sync of another caller
		l.contact.mu.Unlock()
		srv.Disconnect()
		synctest.Wait()
		failure := make(chan error)
		go func() { // ends when both are answered; joined below
			_, err := SyncedChildren(conn, l, "/m")
			failure <- err
		}()
		synctest.Wait()
		close(dial)
		require.ErrorIs(t, <-failure, zk.ErrConnectionClosed)
	})
}
