package option

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestApplyStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	add := func(sum *int) error { *sum++; return nil }
	fail := func(*int) error { return broken }
	sum := 0
	require.NoError(t, Apply(&sum, []func(*int) error{add, add}))
	require.Equal(t, 2, sum)
	require.Equal(t, broken, Apply(&sum, []func(*int) error{add, fail, add}))
	require.Equal(t, 3, sum)
	require.EqualError(t, Apply(&sum, []func(*int) error{nil}), "nil option")
}

func TestChecks(t *testing.T) {
	var id []byte
	require.NoError(t, SetID(&id, strings.Repeat("x", maxID)))
	require.Len(t, id, maxID)
	require.EqualError(t, SetID(&id, strings.Repeat("x", maxID+1)), "id of 65537 bytes: more than 65536")
	require.NoError(t, SetID(&id, ""))
	require.Error(t, SetID(&id, "web-1\n__REVOKE__"))
	require.NotNil(t, id, "an empty id is not the default")

	var name string
	require.NoError(t, SetName(&name, "stock"))
	require.Equal(t, "stock", name)
	require.EqualError(t, SetName(&name, ""), "name: empty")
	require.EqualError(t, SetName(&name, strings.Repeat("x", maxName+1)), "name of 129 bytes: more than 128")
	require.EqualError(t, SetName(&name, "\xff"), "name: not valid UTF-8")
	require.Equal(t, "stock", name)

	require.NoError(t, CheckPositive("grace", time.Nanosecond))
	require.EqualError(t, CheckPositive("grace", 0), "grace: 0s is not positive")
	require.NoError(t, CheckRetry("policy", zkutil.Retry{}))
	require.EqualError(t, CheckRetry("policy", zkutil.Retry{MaxElapsed: -1}), "policy: negative field")
	require.EqualError(t, CheckRetry("policy", zkutil.Retry{MaxAttempts: -1}), "policy: negative field")
}
