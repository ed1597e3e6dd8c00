package latch

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// A refusal is over before it is decided that the latch waits: who reads Err after Decided does not find it there.
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
	l.onWaiting(nil)
	require.True(t, decided)
}
