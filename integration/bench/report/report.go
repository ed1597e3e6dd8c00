// Package report prints the figures of a run as tables and benchstat lines, and draws charts of them.
package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
)

// Report has the figures of a run.
type Report struct {
	Rounds      int
	Environment string
	sections    []Section
}

// Section is one case.
type Section struct {
	Case        runner.Case
	Rows        []Row
	Results     []runner.Result
	Counted     []runner.Counted
	rounds      int
	environment string
}

// Row is the summary of each figure for one peer.
type Row struct {
	Peer    string
	Figures []Summary
}

// Summary is the median of a figure over all rounds, and its spread.
type Summary struct {
	runner.Metric
	Median, Least, Most float64
}

// Environment describes the machine and the form of the run.
func Environment(short bool) string {
	form := "full"
	if short {
		form = "short"
	}
	return fmt.Sprintf("%s, %s form, %d CPUs, %s, %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), form, runtime.NumCPU(),
		runtime.Version(), commit())
}

// Add puts a case into the report.
func (r *Report) Add(c runner.Case, results []runner.Result, counted []runner.Counted) Section {
	s := Section{Case: c, Results: results, Counted: counted, rounds: r.Rounds, environment: r.Environment}
	for _, name := range c.Peers {
		s.Rows = append(s.Rows, Row{Peer: name, Figures: summarize(name, results)})
	}
	r.sections = append(r.sections, s)
	return s
}

func summarize(name string, results []runner.Result) []Summary {
	var rounds [][]runner.Value
	for _, result := range results {
		if result.Peer == name {
			rounds = append(rounds, result.Values)
		}
	}
	if len(rounds) == 0 {
		return nil
	}
	summaries := make([]Summary, len(rounds[0]))
	for i := range summaries {
		numbers := make([]float64, len(rounds))
		for k, values := range rounds {
			numbers[k] = values[i].Number
		}
		summaries[i] = Summary{Metric: rounds[0][i].Metric, Median: median(numbers), Least: slices.Min(numbers), Most: slices.Max(numbers)}
	}
	return summaries
}

// median is the middle of the numbers, or the mean of the two that are.
func median(numbers []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(numbers), cmp.Compare)
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// row returns the row of a peer, or nil.
func (s Section) row(name string) *Row {
	i := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Peer == name && len(r.Figures) > 0 })
	if i < 0 {
		return nil
	}
	return &s.Rows[i]
}

// base is the peer whose figures are divided by the others' figures: this library, or its cohorts.
func (s Section) base() string { return cmp.Or(s.Case.Base, peer.Ours) }

// Ratio is our first figure divided by the peer's.
func (s Section) Ratio(name string) (ratio float64, ok bool) {
	ours, theirs := s.row(s.base()), s.row(name)
	if ours == nil || theirs == nil || theirs.Figures[0].Median == 0 {
		return 0, false
	}
	return ours.Figures[0].Median / theirs.Figures[0].Median, true
}

// WriteFolder writes results.md and benchstat.txt.
func (r *Report) WriteFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var page, lines strings.Builder
	for _, s := range r.sections {
		page.WriteString(s.Markdown())
		lines.WriteString(s.Benchstat())
	}
	if err := os.WriteFile(filepath.Join(dir, "results.md"), []byte(page.String()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "benchstat.txt"), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
