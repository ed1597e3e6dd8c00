package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// A wait counts as slow just after the end of an outage, before the waiter has a znode.
func TestSlowWaitWithoutAZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(time.Hour)
		cfg.SlowWait = time.Minute
		q := fixture.MutexOn(fixture.Connect(t, cfg), "/m").Queue
		queue.NewWaitStatus(q, time.Now().Add(-time.Hour)).WarnIfSlow(q, "")
		synctest.Wait()
	})
}
