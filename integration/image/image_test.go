package image

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBuildMakesTheImageOnce(t *testing.T) {
	tag, err := Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	require.NoError(t, exec.Command("docker", "image", "inspect", tag).Run())
	again, err := Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	require.Equal(t, tag, again)
}

func TestUnknownSuiteIsRefused(t *testing.T) {
	_, err := BuildSuite(t.Context(), "potato", os.Stderr)
	require.Error(t, err)
}

func TestTagFollowsFromTheScriptsOwnFolder(t *testing.T) {
	tag, err := Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	out, err := exec.Command("./build.sh").Output()
	require.NoError(t, err)
	require.Equal(t, tag+"\n", string(out), "the binary carries the files of this folder")
}
