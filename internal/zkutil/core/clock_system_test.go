//go:build linux || darwin

package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestSystemClocksRun(t *testing.T) {
	for _, id := range []int32{continuousClock, stoppingClock} {
		clock := systemClock(id)
		first := clock()
		require.Positive(t, first)
		testkit.Eventually(t, func() bool { return clock() > first }, "the clock runs")
	}
}
