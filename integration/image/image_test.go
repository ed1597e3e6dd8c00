package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// A machine with Ubuntu, or without sources that name a server, leaves the choice of the mirror to mmdebstrap.
func TestMirror(t *testing.T) {
	for _, test := range []struct{ name, file, text, env, want string }{
		{"Debian", "sources.list.d/debian.sources", "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\n", "", "http://mirror.example/debian"},
		{"an older Debian", "sources.list", "# deb http://old.example/debian x main\ndeb [trusted=yes] https://mirror.example/debian x main\n", "", "https://mirror.example/debian"},
		{"Ubuntu", "sources.list.d/ubuntu.sources", "Types: deb\nURIs: http://archive.ubuntu.example/ubuntu/\nSuites: noble\n", "", ""},
		{"an older Ubuntu", "sources.list", "deb http://azure.ubuntu.example/ubuntu/ jammy main\n", "", ""},
		{"a runner of GitHub", "sources.list.d/ubuntu.sources", "Types: deb\nURIs: mirror+file:/etc/apt/apt-mirrors.txt\nSuites: noble\n", "", ""},
		{"APT_MIRROR", "sources.list.d/debian.sources", "URIs: http://mirror.example/debian\n", "http://chosen.example/debian", "http://chosen.example/debian"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sources := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(sources, "sources.list.d"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(sources, test.file), []byte(test.text), 0o600))
			cmd := exec.Command("sh", "-euc", `suite=bookworm; . ./suite.sh; mirror "$1"`, "sh", sources)
			cmd.Env = append(os.Environ(), "APT_MIRROR="+test.env)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, test.want, strings.TrimSpace(string(out)))
		})
	}
}
