package report

import (
	"flag"
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

func TestPageHasOneTableForACase(t *testing.T) {
	_, s := filled()
	require.Equal(t, "### A pair\n\n| | pair p50, µs | zkrecipes ÷ this | requests | bytes |\n|---|---|---|---|---|\n"+
		"| zkrecipes | 1,000 [900..1,200] | 1.00 | 2.00 | 100 |\n| zk.Lock | 10.0 [8.00..12.5] | 100.00 | | |\n\n"+
		"`pair`, 3 rounds; a machine\n\n", s.Page())
	s.Rows = append(s.Rows, Row{Peer: peer.Pipelined, Figures: s.Rows[0].Figures})
	require.NotContains(t, s.Page(), peer.Pipelined)
}

func TestBenchstatLinesAreOneForEachRound(t *testing.T) {
	_, s := filled()
	require.Equal(t, "Benchmark/case=pair/peer=zkrecipes 1 1200 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 8 pair-p50-µs\n"+
		"Benchmark/case=pair/peer=zkrecipes 1 900 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 12.5 pair-p50-µs\n"+
		"Benchmark/case=pair/peer=zkrecipes 1 1000 pair-p50-µs\nBenchmark/case=pair/peer=zk.Lock 1 10 pair-p50-µs\n", s.Benchstat())
}

func TestPageKeepsTablesThatWereNotMeasured(t *testing.T) {
	r, s := filled()
	file := writePage(t, "words\n<!-- bench pair -->\nold\n<!-- end pair -->\n<!-- bench other -->\nkept\n<!-- end other -->\n")
	require.NoError(t, r.UpdatePage(file))
	require.Equal(t, "words\n<!-- bench pair -->\n"+s.Page()+"<!-- end pair -->\n<!-- bench other -->\nkept\n<!-- end other -->\n", read(t, file))
}

// latchTable is the place of a case of the chart handoff, and of that chart.
const latchTable = "<!-- bench chart handoff -->\n<!-- end chart handoff -->\n<!-- bench latch -->\n| | p50, µs |\n|---|---|\n" +
	"| zkrecipes | 1,234.5 [1..2] |\n| etcd | 9,999 [1..2] |\n| Curator | 617 [1..2] |\n<!-- end latch -->\n"

func TestChartHasAWordedBarForEachFigureOfTheTable(t *testing.T) {
	file := writePage(t, latchTable)
	require.NoError(t, new(Report).UpdatePage(file))
	require.Contains(t, read(t, file), "![From a release to the next grant: median (less is better)](page/handoff.svg)\n")
	svg := read(t, filepath.Join(filepath.Dir(file), "page", "handoff.svg"))
	require.Contains(t, svg, ">A leader closes its latch, and the other session leads<")
	require.Contains(t, svg, `width="500" height="14" transform="translate(0,-11)" fill="#d55e00"/>`)
	require.Contains(t, svg, ">1,234 µs<")
	require.Contains(t, svg, `width="249" `, "Curator")
	require.NotContains(t, svg, "etcd")
	require.NotContains(t, svg, "256 waiters", "a case without a table")
}

func TestPageWithoutFiguresGetsNoChart(t *testing.T) {
	for name, page := range map[string]string{
		"no place":   "<!-- bench pair -->\n<!-- end pair -->\n",
		"no figures": "<!-- bench chart handoff -->\n<!-- end chart handoff -->\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := writePage(t, page)
			require.NoError(t, new(Report).UpdatePage(file))
			require.Equal(t, page, read(t, file))
			require.NoDirExists(t, filepath.Join(filepath.Dir(file), "page"))
		})
	}
}

// update draws the charts of the documentation anew, from its tables: go test ./report -update
var update = flag.Bool("update", false, "draw the charts of docs/evidence/performance.md anew")

func TestChartsOfThePageAreCurrent(t *testing.T) {
	const page = "../../../docs/evidence/performance.md"
	if *update {
		require.NoError(t, new(Report).UpdatePage(page))
	}
	for _, c := range charts {
		svg, _, err := c.draw(read(t, page))
		require.NoError(t, err)
		require.Equal(t, svg, read(t, "../../../docs/evidence/performance/"+c.file+".svg"), "run: go test ./report -update")
		require.Contains(t, read(t, page), "!["+c.title+"]")
	}
}

func writePage(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestPageWithoutAnEndIsRefused(t *testing.T) {
	r, _ := filled()
	file := writePage(t, "<!-- bench pair -->\nold\n")
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
