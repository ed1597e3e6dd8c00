package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// The connection is another one when a waiter gets the answer to a listing that it shares. The
// answer may be outdated, so the waiter reads the queue again before it is granted.
func TestReconnectDuringASharedListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m", nil)
		q := fixture.MutexOn(s, "/m")
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			looks++
			return own - 1
		}
		listings := 0
		go func() { // ends with its listing; the waiter shares the next one
			_, _ = session.ListChildren(t.Context(), s, q.Dir, q.Prefix, func(children []string) []queue.Contender {
				if listings++; listings == 2 {
					srv.Disconnect()
				}
				fixture.Pass(2 * time.Second)
				return queue.ParseContenders(children, q.Markers)
			})
		}()
		synctest.Wait()
		e := fixture.Acquire(t, q)
		require.Equal(t, 2, listings)
		require.Len(t, srv.Dialled(), 2)
		require.Equal(t, 2, looks)
		require.NoError(t, e.Leave())
	})
}
