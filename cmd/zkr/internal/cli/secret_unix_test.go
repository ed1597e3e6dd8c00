//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kubernetes mounts a secret as a file of root that the group of the pod may read, behind links.
func TestFilesForSecrets(t *testing.T) {
	isRoot := os.Getuid() == 0
	for _, test := range []struct {
		mode                  os.FileMode
		isAllowed, isOfRootOK bool
	}{
		{0o600, true, true},
		{0o400, true, true},
		{0o440, false, true},
		{0o640, false, true},
		{0o460, false, false},
		{0o604, false, false},
		{0o666, false, false},
	} {
		dir := t.TempDir()
		file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		require.NoError(t, os.Symlink(file, link))
		for _, path := range []string{file, pipe} {
			require.NoError(t, os.Chmod(path, test.mode))
		}
		for _, path := range []string{file, link, pipe} {
			err := checkSecret(path)
			require.Equal(t, test.isAllowed || isRoot && test.isOfRootOK, err == nil, "%v of %s: %v", test.mode, path, err)
		}
		if !isRoot {
			continue // a file can't be given away
		}
		require.NoError(t, os.Chown(file, 1000, 1000))
		require.Equal(t, test.isAllowed, checkSecret(link) == nil, "%v of another user", test.mode)
	}
	require.NoError(t, checkSecret(os.DevNull))
	require.ErrorIs(t, checkSecret(filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
}
