package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An unregistered type is a bug of this module, and panics in every test.
func TestOpenPanicsForOtherTypes(t *testing.T) {
	type client struct{}
	type lease struct{}
	Register(Parts[*client, *lease]{})
	require.NotPanics(t, func() { Open[*client, *lease]() })
	require.Panics(t, func() { Open[*lease, *client]() })
}
