package latch

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// A refusal is cleared before the latch counts as waiting, so Err after Decided does not return the refusal.
func TestErrIsNilOnceDecided(t *testing.T) {
	l, err := New(zkclient.Connect(t, zktest.NewServer(t)), "/election")
	require.NoError(t, err)
	l.reportTrouble(l.base.OpError("join", zk.ErrNoAuth))
	require.ErrorIs(t, l.Err(), zk.ErrNoAuth)
	decided := false
	l.closeDecided = func() {
		decided = true
		require.NoError(t, l.Err())
	}
	l.onWaiting(0, queue.Participant{}, nil)
	require.True(t, decided)
}
