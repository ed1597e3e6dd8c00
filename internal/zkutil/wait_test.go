package zkutil

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangesWakeAllWaiters(t *testing.T) {
	var (
		mu      sync.Mutex // protects state and changes
		state   int
		changes Changes
		waiters sync.WaitGroup
	)
	const last = 100
	for range 10 {
		waiters.Go(func() { // ends at the last state; joined below
			for {
				mu.Lock()
				now, changed := state, changes.ChangedLocked()
				mu.Unlock()
				if now == last {
					return
				}
				<-changed
			}
		})
	}
	for range last {
		mu.Lock()
		state++
		changes.AnnounceLocked()
		mu.Unlock()
	}
	waiters.Wait()
	require.Equal(t, last, state)
}

func TestChangesWithoutAWaiter(t *testing.T) {
	var changes Changes
	changes.AnnounceLocked()
	changed := changes.ChangedLocked()
	require.Equal(t, changed, changes.ChangedLocked(), "one channel until the next change")
	require.Empty(t, changed)
	changes.AnnounceLocked()
	_, isOpen := <-changed
	require.False(t, isOpen)
	require.NotEqual(t, changed, changes.ChangedLocked())
}

// A group is idle once it was finished, and each of its functions ended. Then it runs none.
func TestGroup(t *testing.T) {
	var g Group
	release, hasRun := make(chan struct{}), false
	require.True(t, g.Run(func() {
		<-release
		hasRun = true
	}))
	require.True(t, g.Enter())
	g.Leave()
	require.True(t, g.Enter(), "it was idle, but not finished")
	idle := g.Finish()
	require.Equal(t, idle, g.Finish())
	require.False(t, g.Enter())
	require.False(t, g.Run(func() { t.Error("run") }))
	require.False(t, IsClosed(idle))
	g.Leave()
	require.False(t, IsClosed(idle))
	close(release)
	<-idle
	require.True(t, hasRun)

	var unused Group
	require.True(t, IsClosed(unused.Finish()))
	require.True(t, IsClosed(unused.Finish()))
	require.False(t, unused.Enter())
}
