package logs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Warnings about one directory more than are remembered are logged as well, and once in a while each.
func TestWarningsBeyondThoseRemembered(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := New(context.Background(), nil, nil)
		for i := range 2*maxWarned + 1 {
			dir := fmt.Sprint("/locks/", i)
			require.True(t, l.MayWarnOf(dir), dir)
			require.False(t, l.MayWarnOf(dir), "twice within a minute")
			require.LessOrEqual(t, len(l.warnedAt), maxWarned)
		}
		time.Sleep(warnPause) //nolint:forbidigo // virtual time
		require.True(t, l.MayWarnOf(fmt.Sprint("/locks/", 2*maxWarned)))
	})
}
