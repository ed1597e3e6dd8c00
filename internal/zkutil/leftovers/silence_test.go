package leftovers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
)

func TestWaitsOfASilenceShareOneLimit(t *testing.T) {
	const limit = 10 * time.Second
	var s leftovers.Silence
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	require.Equal(t, at(10), s.Deadline(start, limit, time.Time{}))
	require.Equal(t, at(10), s.Deadline(at(4), limit, time.Time{}), "counts from the first wait")
	require.Equal(t, at(12), s.Deadline(at(4), limit, at(12)), "a new connection has time for its first answer")
	require.Equal(t, at(10), s.Deadline(at(4), limit, at(6)), "a connection does not shorten the wait")
	require.Equal(t, at(14), s.Deadline(at(4), limit, at(20)), "no wait is longer than the limit")
	s.End()
	require.Equal(t, at(15), s.Deadline(at(5), limit, time.Time{}), "a new silence has the whole limit")
}
