package zkutil

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A path of the maximum length is valid, and one that is a byte longer is not.
func TestLongestPath(t *testing.T) {
	require.NoError(t, ValidatePath("/"+strings.Repeat("a", maxPath-1)))
	require.ErrorIs(t, ValidatePath("/"+strings.Repeat("a", maxPath)), ErrInvalidPath)
}

// A row of failures has as many attempts as the policy allows, and no longer a time, and the next row begins anew.
func TestPaceEnds(t *testing.T) {
	const attempts = 5
	pace := Retry{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxAttempts: attempts}.Pace()
	for range 2 {
		for i := range attempts {
			_, ok := pace.Next()
			require.Equal(t, i < attempts-1, ok, "after %d failures", i+1)
		}
		pace.Reset()
	}
	_, ok := Retry{InitialInterval: time.Hour, MaxInterval: time.Hour, MaxElapsed: time.Minute}.Pace().Next()
	require.False(t, ok, "the pause alone is longer")
}

// After refusals the pauses grow to half a minute, and no further unless the policy says so.
func TestLongestPauseAfterRefusals(t *testing.T) {
	for _, test := range []struct{ longest, want time.Duration }{{time.Second, 30 * time.Second}, {30 * time.Second, 30 * time.Second}, {time.Minute, time.Minute}} {
		pace := Retry{InitialInterval: time.Second, MaxInterval: test.longest}.AfterRefusals().Pace()
		var last time.Duration
		for range 100 {
			pause, _ := pace.Next()
			require.LessOrEqual(t, pause, test.want)
			last = max(last, pause)
		}
		require.Equal(t, test.want, last)
	}
}
