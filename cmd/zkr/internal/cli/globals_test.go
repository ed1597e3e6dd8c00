package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The namespace /team is not the beginning of /team-2.
func TestShownLeavesOutTheWholeNamespace(t *testing.T) {
	for _, test := range []struct{ namespace, path, want string }{
		{"", "/team/l", "/team/l"},
		{"/", "/team/l", "/team/l"},
		{"team", "/team/l", "/l"},
		{"/team/", "/team", "/"},
		{"team", "/team-2/l", "/team-2/l"},
		{"team/a", "/team/ab", "/team/ab"},
		{"team/a", "/team", "/team"},
	} {
		g := &globals{namespace: test.namespace}
		require.Equal(t, test.want, g.shown(test.path), "%+v", test)
	}
}
