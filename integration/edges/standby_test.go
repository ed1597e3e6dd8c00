package edges_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// One client holds a lock for 20 T, and 99 stand by. Counted by the servers' transaction ids, they cost a twentieth of a
// transaction per session timeout at most. The first of them gets the lock when it is released.
func TestStandbysCostNoCommits(t *testing.T) {
	t.Parallel()
	const clients, timeouts, timeout = 100, 20, 6 * time.Second
	e := ensemble.New(t, ensemble.Config{Nodes: 3})
	dial := func() *recipes.Client { return testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(timeout)) }
	lease := acquire(t, newMutex(t, dial(), "/standby"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make(chan *recipes.Lease, clients)
	done := make(chan struct{}, clients)
	for range clients - 1 {
		m := newMutex(t, dial(), "/standby")
		go func() { // ends with ctx
			if lease, err := m.Acquire(ctx); err == nil {
				granted <- lease
			}
			done <- struct{}{}
		}()
	}
	conn := testkit.Conn(t, e.Servers(), 60*time.Second)
	testkit.Eventually(t, func() bool {
		children, _, err := conn.Children("/standby")
		return err == nil && len(children) == clients
	}, "all stand by")
	count, isMeasured := 0, false
	for round := 0; !isMeasured; round++ {
		before := transactionID(t, conn, fmt.Sprint("/before-", round))
		time.Sleep(timeouts * timeout) //nolint:forbidigo // the subject is the traffic in this time
		after := transactionID(t, conn, fmt.Sprint("/after-", round))
		count, isMeasured = int(after-before)-1, epochOf(before) == epochOf(after) // a new leader counts from zero
	}
	t.Logf("%d transactions in %d T, of which the holder makes %d", count, timeouts, 6*timeouts)
	require.NoError(t, lease.Context().Err())
	require.LessOrEqual(t, float64(count), 6*timeouts+2+0.05*(clients-1)*timeouts)
	require.NoError(t, lease.Release())
	first := <-granted
	cancel()
	require.NoError(t, first.Release())
	for range clients - 1 {
		<-done
	}
}

// epochOf returns the number of the leader in the id of a transaction.
func epochOf(id int64) int64 { return id >> 32 }

// transactionID creates a znode, and returns the id of that transaction.
func transactionID(t *testing.T, conn *zk.Conn, path string) (id int64) {
	t.Helper()
	testkit.Eventually(t, func() bool { // on a busy machine the connection may be lost
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false
		}
		_, stat, err := conn.Exists(path)
		if err != nil {
			return false
		}
		id = stat.Czxid
		return true
	}, "a transaction")
	return id
}
