package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A process that was stopped for an hour does not make up for the reports of that hour.
func TestOverrunAfterAPauseOfTheProcess(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		entry, err := fixture.MutexOn(fixture.Connect(t, srv.Config(6*time.Second)), "/m").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reports := 0
		stop := session.WatchWork(ctx, func() *session.Entry { return entry }, func(error) {
			if reports++; reports == 1 {
				bubble.Pause(time.Hour) // as if it were stopped
			}
		})
		bubble.Pass(time.Hour + 2*time.Minute)
		stop()
		require.LessOrEqual(t, reports, 3)
		require.NoError(t, entry.Leave())
	})
}
