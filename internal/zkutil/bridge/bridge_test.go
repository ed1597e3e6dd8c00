package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Types that were not registered are a mistake of this module's, which no test overlooks.
func TestOpenPanicsForOtherTypes(t *testing.T) {
	type client struct{}
	type lease struct{}
	Register(Parts[*client, *lease]{})
	require.NotPanics(t, func() { Open[*client, *lease]() })
	require.Panics(t, func() { Open[*lease, *client]() })
}
