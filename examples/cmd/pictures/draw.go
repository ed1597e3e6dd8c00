package main

import (
	"fmt"
	"html"
	"strings"
)

// A picture has lanes from top to bottom. Time runs from left to right.
type picture struct {
	name, title string
	lanes       []string
	bars        []bar
	arrows      []arrow
	marks       []mark
}

// A bar is a state of a lane. Times are 0 to 100.
type bar struct {
	lane     int
	from, to float64
	text     string
	kind     kind
}

// An arrow points from one lane to another.
type arrow struct {
	from, to int
	at       float64
	text     string
}

// A mark is a moment in all lanes.
type mark struct {
	at   float64
	text string
}

// A kind is the color of a bar.
type kind string

const (
	good kind = "#cfe8d5" // holds, is trusted
	idle kind = "#e8e8e8" // waits
	busy kind = "#cfe0f5" // works, or data
	bad  kind = "#f6cfc6" // fails, or is silent
)

// Sizes in pixels.
const (
	width, left, right = 760, 140, 20
	top, lane, height  = 34, 44, 28
)

func x(at float64) float64 { return left + at/100*(width-left-right) }
func y(n int) float64      { return float64(top + n*lane) }

// draw returns the picture as SVG.
func (p picture) draw() string {
	var b strings.Builder
	bottom := y(len(p.lanes))
	full := bottom + 12
	if len(p.marks) > 0 {
		full = bottom + 28
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" `+
		`font-family="Helvetica,Arial,sans-serif" font-size="12">`+"\n", width, full, width, full)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%.0f"/>`+"\n", width, full)
	fmt.Fprintf(&b, `<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">`+
		`<path d="M0,0 L8,4 L0,8 z" class="ink"/></marker></defs>`+"\n")
	text(&b, 10, 20, "start", p.title, `class="ink" font-weight="bold"`)
	for _, m := range p.marks {
		line(&b, x(m.at), top-4, x(m.at), bottom, `stroke-dasharray="4 3"`)
	}
	for i, name := range p.lanes {
		text(&b, 10, y(i)+height-9, "start", name, `class="ink"`)
	}
	for _, s := range p.bars {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="3" fill="%s" stroke="#777777"/>`+"\n",
			x(s.from), y(s.lane), x(s.to)-x(s.from), height, s.kind)
		text(&b, (x(s.from)+x(s.to))/2, y(s.lane)+height-9, "middle", s.text, `fill="#1f2328"`)
	}
	for _, a := range p.arrows {
		start, end := y(a.from)+height, y(a.to)
		if a.to < a.from {
			start, end = y(a.from), y(a.to)+height
		}
		line(&b, x(a.at), start, x(a.at), end, `marker-end="url(#head)"`)
		text(&b, x(a.at)+5, (start+end)/2+4, "start", a.text, `class="ink"`)
	}
	for _, m := range p.marks {
		text(&b, x(m.at), bottom+16, "middle", m.text, `class="ink"`)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// style has the colors outside the bars, by day and at night.
const style = `<style>
.page { fill: #ffffff } .ink { fill: #1f2328 } line { stroke: #59636e }
@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } .ink { fill: #e6edf3 } line { stroke: #9198a1 } }
</style>
`

func line(b *strings.Builder, x1, y1, x2, y2 float64, attributes string) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, attributes)
}

func text(b *strings.Builder, x, y float64, anchor, s, attributes string) {
	if s != "" {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, attributes, html.EscapeString(s))
	}
}
