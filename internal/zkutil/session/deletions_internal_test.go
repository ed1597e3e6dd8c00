package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// All waits of a silence share one budget. A wait that finds its deletion confirmed ends the silence, even if the answer
// arrived just before the wait began.
func TestWaitsOfASilenceShareOneBudget(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newSession(Config{OperationTimeout: 10 * time.Second})
		defer s.life.endTasks()
		confirmed := make(chan struct{})
		close(confirmed)
		start := time.Now()
		require.Equal(t, start.Add(10*time.Second), s.deletionDeadlineLocked(start))
		time.Sleep(4 * time.Second) //nolint:forbidigo // virtual time
		require.Equal(t, start.Add(10*time.Second), s.deletionDeadlineLocked(time.Now()), "counts from the first wait")
		require.False(t, s.endSilence(make(chan struct{})))
		require.Equal(t, start.Add(10*time.Second), s.deletionDeadlineLocked(time.Now()))
		require.True(t, s.endSilence(confirmed))
		require.Equal(t, time.Now().Add(10*time.Second), s.deletionDeadlineLocked(time.Now()), "a new budget")
	})
}
