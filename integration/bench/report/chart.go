package report

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // charts are SVG

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// chart has the first figure of several cases, a group of bars for each case and a bar for each peer.
type chart struct {
	file, title, unit string
	cases             []string
}

var charts = []chart{
	{"pair", "Lock and unlock, nobody else there (p50, less is better)", "µs", []string{"pair", "pair-fsync"}},
	{"one-process", "Contended, 8 sessions of one process (more is better)", "acquisitions/s", contended("8s")},
	{"eight-processes", "Contended, 8 sessions in 8 processes (more is better)", "acquisitions/s", contended("8p")},
	{"one-session", "Contended, one session (more is better)", "acquisitions/s", contended("1s")},
	{"handoff", "From one release to the next grant (p50, less is better)", "µs", []string{"drain-256", "drain-256-8p", "latch"}},
	{"buyers", "1,500 buyers (less is better)", "ms", []string{"buyers-1s-0ms", "buyers-1s-1ms", "buyers-8s-0ms", "buyers-8s-1ms"}},
	{"waiters", "Until all wait (less is better)", "ms", []string{"waiters-100", "waiters-1"}},
}

func contended(spread string) []string {
	var names []string
	for _, n := range []int{2, 8, 64, 256, 1500} {
		names = append(names, fmt.Sprintf("contended-%d-%s", n, spread))
	}
	return names
}

// colors are those of the peers, told apart by most eyes (Okabe and Ito).
var colors = map[string]color.Color{
	peer.Ours:      color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	peer.Cohort:    color.RGBA{0x8c, 0x3b, 0x00, 0xff},
	peer.Lingering: color.RGBA{0x8c, 0x3b, 0x00, 0xff},
	peer.ZKLock:    color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	peer.Curator:   color.RGBA{0x00, 0x72, 0xb2, 0xff},
	peer.Etcd:      color.RGBA{0x00, 0x9e, 0x73, 0xff},
	peer.Redsync:   color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	peer.Unchecked: color.RGBA{0xcc, 0xcc, 0xcc, 0xff},
	peer.Listed:    color.RGBA{0x99, 0x99, 0x99, 0xff},
	peer.Pipelined: color.RGBA{0x66, 0x66, 0x66, 0xff},
	peer.Raw:       color.RGBA{0x00, 0x00, 0x00, 0xff},
}

// drawCharts writes a file for each chart of which the run has a case, and returns those charts. It leaves out a chart that
// would lose a case: one that is shown already, and that the run does not have.
func (r *Report) drawCharts(dir string, isShown func(name string) bool) (drawn []chart, err error) {
	for _, c := range charts {
		isLost := func(name string) bool { return isShown(name) && len(r.measured(name)) == 0 }
		sections := r.measured(c.cases...)
		if len(sections) == 0 || slices.ContainsFunc(c.cases, isLost) {
			continue
		}
		if err := c.draw(filepath.Join(dir, c.file+".svg"), sections); err != nil {
			return nil, fmt.Errorf("report: chart %s: %w", c.file, err)
		}
		drawn = append(drawn, c)
	}
	return drawn, nil
}

// measured returns the sections of those of the cases that the run has.
func (r *Report) measured(cases ...string) []Section {
	var sections []Section
	for _, name := range cases {
		for _, s := range r.sections {
			if s.Case.Name == name {
				sections = append(sections, s)
			}
		}
	}
	return sections
}

func (c chart) draw(file string, sections []Section) error {
	const width, groupWidth = vg.Length(9), 0.85 // of a bar in points; of a group among the distances
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = c.title, c.unit
	p.Y.Min = 0
	p.Legend.Top = true
	names := peersOf(sections)
	for i, name := range names {
		values := make(plotter.Values, len(sections))
		for k, s := range sections {
			if row := s.row(name); row != nil {
				values[k] = row.Figures[0].Median
			}
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[name], 0
		bars.Offset = (vg.Length(i) - vg.Length(len(names)-1)/2) * width
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	labels := make([]string, len(sections))
	for i, s := range sections {
		labels[i] = strings.TrimPrefix(s.Case.Name, "contended-")
	}
	p.NominalX(labels...)
	across := vg.Length(len(sections)*len(names)) * width / groupWidth
	return p.Save(max(across+4*vg.Inch, 7*vg.Inch), 4*vg.Inch, file)
}

// peersOf returns the peers that any of the sections has, in their order.
func peersOf(sections []Section) []string {
	var names []string
	for _, s := range sections {
		for _, row := range s.Rows {
			if !slices.Contains(names, row.Peer) {
				names = append(names, row.Peer)
			}
		}
	}
	return names
}
