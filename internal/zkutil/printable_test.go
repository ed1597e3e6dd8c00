package zkutil_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "/locks/a": "/locks/a", "/sperre/größe": "/sperre/größe", "a b": "a b",
		"a\nlevel=ERROR": `"a\nlevel=ERROR"`, "a\u202eb": `"a\u202eb"`, "\xff": `"\xff"`, "a\u200bb": `"a\u200bb"`,
	} {
		require.Equal(t, want, zkutil.Printable(text))
	}
	require.ErrorContains(t, zkutil.Denied(zk.ErrNoAuth, "read", "/a\u202eb"), `read "/a\u202eb" (`)
}
