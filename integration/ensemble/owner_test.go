package ensemble

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwnerOfARunningProcessIsNotGone(t *testing.T) {
	o, ok := parseOwner(self().String())
	require.True(t, ok)
	require.Equal(t, self(), o)
	require.False(t, o.gone())
}

func TestOwnerThatEndedIsGone(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	o := self()
	o.pid = cmd.Process.Pid
	require.True(t, o.gone())
}

func TestOwnerWhosePidCameBackIsGone(t *testing.T) {
	o := self()
	o.started = "1"
	require.True(t, o.gone())
}

func TestOwnerOnAnotherHostIsLeftAlone(t *testing.T) {
	o := self()
	o.host, o.pid = "elsewhere", 1<<22+1
	require.False(t, o.gone())
}

func TestForeignLabelIsNoOwner(t *testing.T) {
	_, ok := parseOwner("me")
	require.False(t, ok)
}
