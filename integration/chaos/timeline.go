package chaos

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// What a picture shows around a moment, and its sizes in pixels.
const (
	pictureTime  = 20 * time.Second
	pictureWidth = 1600
	rowHeight    = 22
	nameWidth    = 180
)

// Timeline draws what happened to one lock around a moment: contenders are rows, waits
// and leases are bars, the znodes of the logs are lines below them, faults are marks.
func Timeline(h *History, path string, at int64) []byte {
	from, to := at-int64(pictureTime)/2, at+int64(pictureTime)/2
	x := func(t int64) float64 {
		return nameWidth + float64(min(max(t, from), to)-from)/float64(to-from)*(pictureWidth-nameWidth)
	}
	var shown []*Hold
	var rows []string
	for _, hold := range h.holds()[path] {
		if hold.Called < to && max(hold.Ended, hold.Granted) > from {
			shown = append(shown, hold)
			rows = append(rows, hold.By)
		}
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	var faults []Fault
	for _, f := range h.Faults {
		if f.From < to && max(f.To, f.From) > from {
			faults = append(faults, f)
		}
	}
	height := (len(rows)+len(faults)+2)*rowHeight + 20
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="11">`, pictureWidth, height)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="white"/><text x="4" y="14">%s, %v around the violation</text>`, html.EscapeString(path), pictureTime)
	bar := func(from, to int64, y, height int, color, title string) {
		fmt.Fprintf(&svg, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`,
			x(from), y, max(1, x(to)-x(from)), height, color, html.EscapeString(title))
	}
	row := func(i int, name string) int {
		y := (i + 1) * rowHeight
		fmt.Fprintf(&svg, `<text x="4" y="%d">%s</text>`, y+12, html.EscapeString(name))
		return y
	}
	for i, name := range rows {
		y := row(i, name)
		for _, hold := range shown {
			if hold.By != name {
				continue
			}
			bar(hold.Called, hold.Granted, y+6, 4, "#bbbbbb", "waits")
			bar(hold.Granted, hold.Ended, y+1, 13, "#3b7dd8", fmt.Sprintf("token %d, %s", hold.Token, hold.Cause))
			if hold.Life != nil && hold.Life.Gone != 0 {
				bar(hold.Life.Created*int64(time.Millisecond)-h.Offset, h.gone(hold), y+16, 2, "#444444", "znode "+hold.Znode)
			}
		}
	}
	for i, f := range faults {
		who := ""
		if f.Proc != 0 {
			who = fmt.Sprintf(" p%d", f.Proc)
		}
		bar(f.From, max(f.To, f.From), row(len(rows)+i, f.Kind+who)+3, 10, "#d9822b", f.Kind+" "+f.Znode)
	}
	fmt.Fprintf(&svg, `<line x1="%[1]g" x2="%[1]g" y1="20" y2="%[2]d" stroke="red"/></svg>`, x(at), height)
	return []byte(svg.String())
}
