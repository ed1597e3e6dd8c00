package recipes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A namespace that was let through makes a valid path of each valid path, below itself.
func FuzzNamespace(f *testing.F) {
	for _, seed := range [][2]string{{"", "/"}, {"/", "/a"}, {"app", "/"}, {"/team/service", "/a/b"}, {"..", "/a"}, {"zookeeper", "/x"}, {"a/", "a"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, namespace, path string) {
		cfg, err := configure([]Option{WithNamespace(namespace)})
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidPath)
			return
		}
		_, full, err := (&Client{session: new(session.Session), namespace: cfg.namespace}).attach(path)
		require.Equal(t, zkutil.ValidatePath(path) == nil, err == nil, "%q", path)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidPath)
			require.ErrorIs(t, err, ErrInvalidArgument)
			return
		}
		require.True(t, full == cfg.namespace || strings.HasPrefix(full, cfg.namespace+"/"), "%q in %q", full, cfg.namespace)
		if len(full) < 16<<10 {
			require.NoError(t, zkutil.ValidatePath(full))
		}
	})
}
