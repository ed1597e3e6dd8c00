package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// A chart shows a figure of several cases, with a group of bars per case and a bar per series.
type chart struct {
	file, title, unit string
	peers             []string
	groups            []group
}

// A group is a case, in words, and the column of its figure. The first is 0.
type group struct {
	name, words string
	column      int
}

var few = []string{peer.Ours, peer.ZKLock, peer.Curator, peer.Raw}

var charts = []chart{
	{"questions", "How long it takes: median (less is better)", " µs", append([]string{peer.Etcd}, few...), []group{
		{"pair-fsync", "Lock and unlock, nobody else there, with fsync", 0},
		{"basket-10-fsync", "Lock and unlock ten locks together, with fsync", 0},
		{"contended-64-8p", "From a release to the next grant, 64 contenders in 8 processes", 1},
		{"latch", "A leader closes its latch, and the other session leads", 0},
	}},
	{"eight-processes", "Acquisitions per second (more is better)", "", few, []group{
		{"contended-2-8p", "2 contenders in 2 processes", 0},
		{"contended-8-8p", "8 contenders in 8 processes", 0},
		{"contended-64-8p", "64 contenders in 8 processes", 0},
		{"contended-256-8p", "256 contenders in 8 processes", 0},
	}},
	{"handoff", "From a release to the next grant: median (less is better)", " µs", few, []group{
		{"drain-256", "256 waiters on 8 sessions of one process", 0},
		{"drain-256-8p", "256 waiters in 8 processes", 0},
		{"latch", "A leader closes its latch, and the other session leads", 0},
	}},
}

// series are the peers of the charts, with their labels and colors (of Okabe and Ito, which most eyes distinguish).
var series = []struct{ peer, label, color string }{
	{peer.Ours, "zkrecipes", "#d55e00"},
	{peer.ZKLock, "zk.Lock", "#56b4e9"},
	{peer.Curator, "Curator", "#0072b2"},
	{peer.Etcd, "etcd", "#009e73"},
	{peer.Raw, "raw socket (the limit)", "#888888"},
}

// measurement matches the figure of a column in the line of a peer in a table.
func measurement(column int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`(?m)^\| ([^|]+) \|(?:[^|]+\|){%d} ([\d.,]+) \[`, column))
}

// Sizes in pixels.
const (
	barRoom             = 500 // of the longest bar
	rowHeight, groupGap = 20, 12
)

// bar and drawing are what the template draws.
type (
	bar struct {
		Y, Length    int
		Label, Value string
		Color        string
	}
	heading struct {
		Y     int
		Words string
	}
	drawing struct {
		Title    string
		Height   int
		Headings []heading
		Bars     []bar
	}
)

var picture = template.Must(template.New("chart").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{{.Height}}" viewBox="0 0 760 {{.Height}}" font-family="Helvetica,Arial,sans-serif" font-size="13">
<title>{{html .Title}}</title>
<style>
.page { fill: #ffffff } text { fill: #1f2328 }
@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } text { fill: #e6edf3 } }
</style>
<rect class="page" width="760" height="{{.Height}}"/>
<text x="12" y="24" font-size="15" font-weight="bold">{{html .Title}}</text>
{{range .Headings}}<text x="12" y="{{.Y}}" font-weight="bold">{{html .Words}}</text>
{{end}}{{range .Bars}}<text x="170" y="{{.Y}}" text-anchor="end">{{html .Label}}</text><rect x="180" y="{{.Y}}" width="{{.Length}}" height="14" transform="translate(0,-11)" fill="{{.Color}}"/><text x="{{.Length}}" y="{{.Y}}" dx="188">{{.Value}}</text>
{{end}}</svg>
`))

// draw returns the chart as SVG, from the tables of a page. A case without a table is left out; found is false if the page has none of them.
func (c chart) draw(page string) (svg string, found bool, err error) {
	d := drawing{Title: c.title}
	y, most := 24, 0.0
	values := map[int]float64{} // by index in d.Bars
	for _, g := range c.groups {
		from, to, _, err := find(page, g.name)
		if err != nil {
			return "", false, err
		}
		figures := map[string]float64{}
		for _, m := range measurement(g.column).FindAllStringSubmatch(page[from:to], -1) {
			if figures[m[1]], err = strconv.ParseFloat(strings.ReplaceAll(m[2], ",", ""), 64); err != nil {
				return "", false, fmt.Errorf("report: %s: %w", g.name, err)
			}
		}
		if len(figures) == 0 {
			continue
		}
		y += rowHeight + groupGap
		d.Headings = append(d.Headings, heading{y, g.words})
		for _, s := range series {
			figure, isMeasured := figures[s.peer]
			if !isMeasured || !slices.Contains(c.peers, s.peer) {
				continue
			}
			y += rowHeight
			values[len(d.Bars)], most = figure, max(most, figure)
			d.Bars = append(d.Bars, bar{Y: y, Label: s.label, Color: s.color, Value: thousands(fmt.Sprintf("%.0f", figure)) + c.unit})
		}
	}
	for i, figure := range values {
		d.Bars[i].Length = int(figure / most * barRoom)
	}
	d.Height = y + rowHeight
	var b strings.Builder
	err = picture.Execute(&b, d)
	return b.String(), len(d.Bars) > 0, err
}
