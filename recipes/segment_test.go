package recipes_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestSegment(t *testing.T) {
	for text, want := range map[string]string{
		"book-1":          "book-1",
		"":                "%",
		"%":               "%25",
		"a/b":             "a%2Fb",
		"Bücher 1":        "B%C3%BCcher%201",
		".":               "%2E",
		"..":              ".%2E",
		"...":             "...",
		"zookeeper":       "zookeepe%72",
		"lock-0000000000": "lock-000000000%30",
		"\x00\n":          "%00%0A",
		"\xff":            "%FF",
	} {
		require.Equal(t, want, recipes.Segment(text), "%q", text)
	}
}

func FuzzSegment(f *testing.F) {
	for _, text := range []string{"", "a", "a/b", "..", "zookeeper", "x-lock-0123456789", "x__READ__0000000001", "lease-0000000000", "latch--000000001", "\xff\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 {
			return
		}
		segment := recipes.Segment(text)
		require.NotContains(t, segment, "/")
		for _, path := range []string{"/" + segment, "/a/" + segment + "/b"} {
			require.NoError(t, zkutil.ValidatePath(path))
			require.NoError(t, queue.CheckPath(path))
		}
		back, err := url.PathUnescape(strings.TrimSuffix(segment, "%"))
		require.NoError(t, err)
		require.Equal(t, text, back, "the text can be found again, so no two texts share a segment")
	})
}
