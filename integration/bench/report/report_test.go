package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
)

var metric = runner.Metric{Name: "pair p50", Unit: "µs"}

// filled is a report of one case: two peers, three rounds.
func filled() (*Report, Section) {
	r := &Report{Rounds: 3, Environment: "a machine"}
	c := runner.Case{Name: "pair", Title: "A pair", Cost: "round trips", Peers: []string{peer.Ours, peer.ZKLock}, Load: load.Load{Contenders: 1}}
	var results []runner.Result
	for round, numbers := range [][2]float64{{1200, 8}, {900, 12.5}, {1000, 10}} {
		for i, name := range c.Peers {
			results = append(results, runner.Result{
				Case: c.Name, Peer: name, Round: round, Values: []runner.Value{{Metric: metric, Number: numbers[i]}},
			})
		}
	}
	counted := []runner.Counted{{
		Case: c.Name, Peer: peer.Ours, Acquisitions: 10,
		Counts: meter.Counts{Requests: map[string]int{"create": 10, "delete": 10}, Answers: 20, Events: 5, Trips: 20, BytesUp: 900, BytesDown: 100},
	}}
	return r, r.Add(c, results, counted)
}

func TestTableHasMediansSpreadAndRatios(t *testing.T) {
	_, s := filled()
	require.Equal(t, "### A pair\n\n`pair`: the ratio is better below 1. What it costs: round trips.\n\n"+
		"| | pair p50, µs | zkrecipes ÷ this |\n|---|---|---|\n"+
		"| zkrecipes | 1,000 [900..1,200] | 1.00 |\n| zk.Lock | 10.0 [8.00..12.5] | 100.00 |\n\n"+
		"| counted, for each acquisition | requests | packets from the server | watch events | bytes | round trips |\n|---|---|---|---|---|---|\n"+
		"| zkrecipes | 2.00 | 2.50 | 0.50 | 100 | 2.00 |\n\n"+
		"Median of 3 rounds [least..most]; a machine.\n\n", s.Markdown())
}

func TestBenchstatLinesAreOneForEachRound(t *testing.T) {
	_, s := filled()
	require.Equal(t, "Benchmark/case=pair/peer=zkrecipes 1 1200 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 8 pair-p50-µs\n"+
		"Benchmark/case=pair/peer=zkrecipes 1 900 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 12.5 pair-p50-µs\n"+
		"Benchmark/case=pair/peer=zkrecipes 1 1000 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 10 pair-p50-µs\n", s.Benchstat())
}

func TestPageKeepsWhatWasNotMeasured(t *testing.T) {
	r, s := filled()
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("words\n<!-- bench chart pair -->\n<!-- end chart pair -->\n<!-- bench pair -->\nold\n<!-- end pair -->\n<!-- bench other -->\nkept\n<!-- end other -->\n"), 0o600))
	require.NoError(t, r.UpdatePage(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "words\n<!-- bench chart pair -->\n![Lock and unlock, nobody else there (p50, less is better)](page/pair.svg)\n<!-- end chart pair -->\n"+
		"<!-- bench pair -->\n"+s.Markdown()+"<!-- end pair -->\n<!-- bench other -->\nkept\n<!-- end other -->\n", string(text))
	chart, err := os.ReadFile(filepath.Join(filepath.Dir(file), "page", "pair.svg"))
	require.NoError(t, err)
	require.Contains(t, string(chart), "zk.Lock")
}

// A chart of two cases is drawn anew only by a run that has both, once the page has both tables.
func TestPageKeepsAChartThatWouldLoseACase(t *testing.T) {
	r, _ := filled()
	file := filepath.Join(t.TempDir(), "page.md")
	const page = "<!-- bench chart pair -->\n<!-- end chart pair -->\n<!-- bench pair -->\n<!-- end pair -->\n<!-- bench pair-fsync -->\nold\n<!-- end pair-fsync -->\n"
	require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	require.NoError(t, r.UpdatePage(file))
	require.NoFileExists(t, filepath.Join(filepath.Dir(file), "page", "pair.svg"))

	other := r.sections[0]
	other.Case.Name = "pair-fsync"
	r.sections = append(r.sections, other)
	require.NoError(t, r.UpdatePage(file))
	chart, err := os.ReadFile(filepath.Join(filepath.Dir(file), "page", "pair.svg"))
	require.NoError(t, err)
	require.Contains(t, string(chart), "pair-fsync")
}

func TestPageWithoutAnEndIsRefused(t *testing.T) {
	r, _ := filled()
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("<!-- bench pair -->\nold\n"), 0o600))
	require.ErrorContains(t, r.UpdatePage(file), "<!-- end pair -->")
}

func TestFolderHasTheLines(t *testing.T) {
	r, s := filled()
	dir := filepath.Join(t.TempDir(), "out")
	require.NoError(t, r.WriteFolder(dir))
	lines, err := os.ReadFile(filepath.Join(dir, "benchstat.txt"))
	require.NoError(t, err)
	require.Equal(t, s.Benchstat(), string(lines))
}

func TestMedianOfAnEvenNumber(t *testing.T) {
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	require.Equal(t, "1,234,567", number(1234567))
	require.Equal(t, "-1,234", number(-1234))
}
