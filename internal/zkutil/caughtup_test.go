package zkutil

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The sync of another search may be taken for the own one, and then the list may be asked for first. If the connection ends
// before that, zk.Conn sends both on the next one, to a server that has not caught up when it lists.
func TestListOfAnotherConnectionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(6 * time.Second)
		dial := make(chan struct{}, 1)
		dial <- struct{}{}
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			<-dial
			return srv.dial(network, address, timeout)
		}
		s := connect(t, cfg)
		srv.Put("/m", nil)
		l := s.wire.line()
		l.contact.mu.Lock()
		close(l.contact.syncs) // the sync of another search
		l.contact.mu.Unlock()
		srv.Disconnect()
		synctest.Wait()
		failure := make(chan error)
		go func() { // ends when both are answered; joined below
			_, err := syncedChildren(s.Conn(), l, "/m")
			failure <- err
		}()
		synctest.Wait()
		close(dial)
		require.ErrorIs(t, <-failure, zk.ErrConnectionClosed)
	})
}

// However a search is interrupted, at its sync or at its list, it ends with the reason, and leaves no goroutine.
func TestSearchIsInterrupted(t *testing.T) {
	interruptions := map[string]struct {
		cause  func(srv *ensemble, s *Session, cancel context.CancelFunc)
		expect []error // one of them
	}{
		"closed":    {func(_ *ensemble, s *Session, _ context.CancelFunc) { _ = s.Close() }, []error{ErrClosed}},
		"cancelled": {func(_ *ensemble, _ *Session, cancel context.CancelFunc) { cancel() }, []error{context.Canceled}},
		"expired": {
			func(srv *ensemble, s *Session, _ context.CancelFunc) { srv.Expire(sessionID(s)) },
			[]error{zk.ErrConnectionClosed, zk.ErrSessionExpired},
		},
		"disconnected": {func(srv *ensemble, _ *Session, _ context.CancelFunc) { srv.Disconnect() }, []error{zk.ErrConnectionClosed}},
	}
	for name, c := range interruptions {
		for _, isAdopted := range []bool{false, true} {
			for _, op := range []zktest.Op{zktest.OpSync, zktest.OpGetChildren2} {
				t.Run(fmt.Sprintf("%s at %v, adopted %v", name, op, isAdopted), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						srv := newEnsemble(t)
						var s *Session
						if isAdopted {
							s, _ = adopt(t, srv, 6*time.Second)
						} else {
							s = connect(t, srv.config(6*time.Second))
						}
						srv.Put("/m", nil)
						defer srv.Delay(op, time.Hour)()
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						failure := make(chan error, 1)
						var endedAt time.Time
						go func() { // ends when the search is interrupted; joined below
							_, err := s.search(ctx, "/m", "a uuid", false)
							endedAt = time.Now()
							failure <- err
						}()
						pass(100 * time.Millisecond)
						require.Empty(t, failure)
						start := time.Now()
						c.cause(srv, s, cancel) // Close waits longer for zk.Conn than the search does
						err := <-failure
						require.True(t, isAny(err, c.expect...), "%v", err)
						require.LessOrEqual(t, endedAt.Sub(start), 100*time.Millisecond)
					})
				})
			}
		}
	}
}

// A list whose sync was refused counts for nothing: the server may lag behind.
func TestSearchNeedsItsSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		srv.Put("/m", nil)
		srv.once(zktest.OpSync, zktest.Fault{Refusal: zktest.RefuseNoAuth})
		_, err := s.search(t.Context(), "/m", "a uuid", false)
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
}
