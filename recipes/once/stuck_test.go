package once_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A function that ignores the end of its context blocks the ticks of all hosts. The log of its host reports that repeatedly.
func TestStuckRunIsLogged(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log testkit.Log
		o := f.loggedHost("web-1", &log)
		release, ended := make(chan struct{}), make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
			defer cancel()
			ended <- o.Do(ctx, tick, func(context.Context, *recipes.Lease) error {
				<-release
				return nil
			})
		}()
		pass(time.Minute + 2*time.Second)
		reports := func() (n int) {
			for _, line := range log.Take() {
				if strings.Contains(line, "work still running") && strings.Contains(line, "path="+jobs) {
					n++
				}
			}
			return n
		}
		require.Equal(f, 1, reports())
		pass(10 * time.Minute)
		require.Equal(f, 10, reports(), "once a minute")
		close(release)
		require.NoError(f, <-ended)
	})
}
