package ensemble_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestConfigureCountsFromTheNextStartOn(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Private: true})
	bound := func() string {
		conf, err := zkadmin.FourLetter(testkit.Context(t), e.Server(0), "conf")
		require.NoError(t, err)
		return conf
	}
	for _, value := range []string{"20000", "15000"} {
		require.NoError(t, e.Configure(testkit.Context(t), 0, map[string]string{"minSessionTimeout": value}))
		require.NotContains(t, bound(), "minSessionTimeout="+value)
		require.NoError(t, e.RollingRestart(testkit.Context(t), nil))
		require.Contains(t, bound(), "minSessionTimeout="+value)
	}
	require.NoError(t, e.Configure(testkit.Context(t), 0, map[string]string{"minSessionTimeout": ""}))
	require.NoError(t, e.RollingRestart(testkit.Context(t), nil))
	require.Contains(t, bound(), "minSessionTimeout=1000", "two ticks")
}

func TestArmedScriptRunsWhenFired(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Private: true})
	fire, err := e.Arm(testkit.Context(t), 0, "touch /fired")
	require.NoError(t, err)
	_, err = e.Exec(testkit.Context(t), 0, "test", "!", "-e", "/fired")
	require.NoError(t, err)
	require.NoError(t, fire())
	_, err = e.Exec(testkit.Context(t), 0, "test", "-e", "/fired")
	require.NoError(t, err)

	fire, err = e.Arm(testkit.Context(t), 0, "echo no way; false")
	require.NoError(t, err)
	require.ErrorContains(t, fire(), "no way")
}
