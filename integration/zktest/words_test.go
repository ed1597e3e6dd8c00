package zktest_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Each field in zktest's answers to four-letter words is a field of a real server's, in the same form.
func TestFourLetterWordsHaveTheFormOfARealServer(t *testing.T) {
	const timeout = 10 * time.Second
	zookeeper := ensemble.New(t, ensemble.Config{}).Servers()
	ours := zktest.NewServer(t)
	testkit.Conn(t, zookeeper, timeout)
	testkit.Conn(t, ours.Addrs(), timeout)
	ask := func(server, word string) string {
		answer, err := zkadmin.FourLetter(testkit.Context(t), server, word)
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, ask(zookeeper[0], "ruok"), ask(ours.Addr(), "ruok"))
	for word, separator := range map[string]string{"srvr": ": ", "conf": "="} {
		want, got := formOf(ask(zookeeper[0], word), separator), formOf(ask(ours.Addr(), word), separator)
		require.Greater(t, len(got), 4)
		require.Subset(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)), word)
		for field, form := range got {
			if field != "Zookeeper version" {
				require.Equal(t, want[field], form, field)
			}
		}
	}
	connection := regexp.MustCompile(`(?m)^ /[0-9.]+:\d+\[\d\]\(queued=0,(?:.*,)?sid=0x[0-9a-f]+,(?:.*,)?to=10000[,)]`)
	require.Regexp(t, connection, ask(zookeeper[0], "cons"))
	require.Regexp(t, connection, ask(ours.Addr(), "cons"))
}

// formOf returns the fields of an answer, with a digit in place of each number.
func formOf(answer, separator string) map[string]string {
	number := regexp.MustCompile(`-?(0x)?[0-9a-f]*[0-9]`)
	fields := map[string]string{}
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			fields[name] = number.ReplaceAllString(value, "${1}1")
		}
	}
	return fields
}
