package zkutil

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestValidatePath(t *testing.T) {
	for _, path := range []string{
		"/", "/a", "/a/b/c", "/a b", "/ä/世界", "/a.b", "/...", "/a/..b", "/a/.b", "/zookeeperx", "/a/zookeeper",
		"/_c_x-lock-0000000000", "/\u00a0", "/\ud7ff", "/\uf900", "/\uffef",
	} {
		require.NoError(t, ValidatePath(path), "%q", path)
	}
	for path, why := range map[string]string{
		"":                                "empty",
		"a":                               "not absolute",
		"a/b":                             "not absolute",
		"./a":                             "not absolute",
		"/a/":                             "trailing slash",
		"//":                              "trailing slash",
		"//a":                             "empty segment",
		"/a//b":                           "empty segment",
		"/.":                              "relative segment",
		"/..":                             "relative segment",
		"/a/./b":                          "relative segment",
		"/a/../b":                         "relative segment",
		"/a/..":                           "relative segment",
		"/a\x00":                          "forbidden character at byte 2",
		"/a\tb":                           "forbidden character",
		"/a\x7f":                          "forbidden character",
		"/a\u0085":                        "forbidden character",
		"/a\ue000\uf000":                  "forbidden character",
		"/\ue000":                         "forbidden character",
		"/\uf8ff":                         "forbidden character",
		"/\U0001F512":                     "forbidden character",
		"/\ufff0":                         "forbidden character",
		"/\uffff":                         "forbidden character",
		"/\xff":                           "not UTF-8",
		"/zookeeper":                      "reserved",
		"/" + strings.Repeat("a", 16<<10): "longer",
		"/zookeeper/x":                    "reserved",
	} {
		err := ValidatePath(path)
		require.ErrorIs(t, err, ErrInvalidPath, "%q", path)
		require.ErrorContains(t, err, why, "%q", path)
	}
}

// Paths accepted here are accepted by zk.Conn and by the server, whose rule is written here as one expression.
func FuzzValidatePath(f *testing.F) {
	for _, seed := range []string{"", "/", "/a/b", "/a//b", "/a/../b", "/zookeeper", "/ä", "/\x00", "/a.", "/.a", "/a/"} {
		f.Add(seed)
	}
	server := regexp.MustCompile(`^/$|^(/[^/\x00-\x1f\x7f-\x{9f}\x{d800}-\x{f8ff}\x{fff0}-\x{10ffff}]+)+$`)
	f.Fuzz(func(t *testing.T, path string) {
		want := utf8.ValidString(path) && len(path) <= maxPath && server.MatchString(path) && path != "/zookeeper" && !strings.HasPrefix(path, "/zookeeper/")
		for segment := range strings.SplitSeq(path, "/") {
			want = want && segment != "." && segment != ".."
		}
		require.Equal(t, want, ValidatePath(path) == nil, "%q", path)
		if want && path != "/" {
			dir, name := Split(path)
			require.Equal(t, path, Join(dir, name))
			require.NoError(t, ValidatePath(dir))
			require.NotContains(t, name, "/")
		}
	})
}

func TestJoinAndSplit(t *testing.T) {
	for _, test := range []struct{ dir, name, path string }{
		{"/", "a", "/a"}, {"/a", "b", "/a/b"}, {"/a/b", "c", "/a/b/c"},
	} {
		require.Equal(t, test.path, Join(test.dir, test.name))
		dir, name := Split(test.path)
		require.Equal(t, test.dir, dir)
		require.Equal(t, test.name, name)
	}
	require.Equal(t, "/a/b", Join("/a", "/b"))
	dir, name := Split("/")
	require.Equal(t, "/", dir)
	require.Empty(t, name)
}

func TestNumberOf(t *testing.T) {
	for path, want := range map[string]int64{
		"/d/_c_x-lock-0000000012": 12, "/d/2147483647": 2147483647, "0000000000": 0, "/d/lock--0000000001": 1,
		"lock-9999999999": 9999999999, "1234567890": 1234567890, "lock-000000000/": -1, "lock-000000000:": -1, "/00000000": -1,
		"": -1, "/d/lock": -1, "000000012": -1, "/d/lock-000000x012": -1, "/d/lock+000000012": -1, "/d/lock--000000012": -1,
	} {
		number, ok := NumberOf(path)
		require.Equal(t, want >= 0, ok, path)
		require.Equal(t, max(want, 0), number, path)
	}
}

func TestNewUUID(t *testing.T) {
	canonical := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var all []string
	for range 1000 {
		uuid := NewUUID()
		require.Len(t, uuid, 36)
		require.Regexp(t, canonical, uuid)
		all = append(all, uuid)
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 1000)
}

// The protection is the text up to the dash behind the uuid, of protected names alone.
func TestProtectionOf(t *testing.T) {
	protection := Protection + NewUUID() + "-"
	for name, want := range map[string]string{
		protection + "lock-0000000001": protection, protection: protection, protection[:len(protection)-1]: "", "": "", "lock-0000000001": "",
		"x" + protection + "lock-0000000001": "",
	} {
		require.Equal(t, want, ProtectionOf(name), name)
	}
}
