package chaos

import (
	"fmt"
	"html"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

// The range of a picture around a moment, and its sizes in pixels.
const (
	pictureTime  = 20 * time.Second
	pictureWidth = 1600
	rowHeight    = 22
	nameWidth    = 180
)

// picture is a drawing of some time, with a row for each name in order of appearance, and bars in the rows.
type picture struct {
	from, to int64
	names    []string
	bars     strings.Builder
}

// bar draws a span of time in a row, at a height within it. Spans at other times are not drawn.
func (p *picture) bar(name string, from, to int64, y, height int, color, title string) {
	if from >= p.to || to < p.from {
		return
	}
	row := slices.Index(p.names, name)
	if row < 0 {
		row = len(p.names)
		p.names = append(p.names, name)
	}
	fmt.Fprintf(&p.bars, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`,
		p.x(from), (row+1)*rowHeight+y, max(1, p.x(to)-p.x(from)), height, color, html.EscapeString(title))
}

func (p *picture) x(t int64) float64 {
	return nameWidth + float64(min(max(t, p.from), p.to)-p.from)/float64(p.to-p.from)*(pictureWidth-nameWidth)
}

// svg returns the picture, with a line at a moment.
func (p *picture) svg(title string, at int64) []byte {
	height := (len(p.names)+1)*rowHeight + 20
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="11">`, pictureWidth, height)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/><text x="4" y="14">%s</text>`, html.EscapeString(title))
	for i, name := range p.names {
		fmt.Fprintf(&s, `<text x="4" y="%d">%s</text>`, (i+1)*rowHeight+12, html.EscapeString(name))
	}
	s.WriteString(p.bars.String())
	fmt.Fprintf(&s, `<line x1="%[1]g" x2="%[1]g" y1="20" y2="%[2]d" stroke="red"/></svg>`, p.x(at), height)
	return []byte(s.String())
}

// Timeline draws what happened to one lock around a moment: contenders are rows with waits
// and leases as bars, and the lease's znode below; then what else was in the queue, and the
// faults.
func Timeline(h *History, lock string, at int64) []byte {
	h = h.eraAt(at)
	p := &picture{from: at - int64(pictureTime)/2, to: at + int64(pictureTime)/2}
	waits := h.waits(lock)
	slices.SortStableFunc(waits, func(a, b wait) int { return strings.Compare(a.by, b.by) })
	for _, w := range waits {
		p.bar(w.by, w.from, w.to, 6, 4, "#bbbbbb", "waits")
	}
	held := make(map[*Life]string)
	for _, hold := range h.holds()[lock] {
		held[hold.Life] = hold.By
		ended := hold.Ended
		if ended == 0 {
			ended = math.MaxInt64
		}
		p.bar(hold.By, hold.Granted, ended, 1, 13, "#3b7dd8", fmt.Sprintf("token %d, %s", hold.Token, hold.Cause))
	}
	for _, l := range h.Lives {
		if directory(l.Path) != lock {
			continue
		}
		name, holds := held[l]
		if !holds {
			name = path.Base(l.Path)
			name = "…" + name[max(0, len(name)-20):]
		}
		gone := int64(math.MaxInt64)
		if l.Gone != 0 {
			gone = h.monotonic(l.Gone)
		}
		p.bar(name, h.monotonic(l.Created), gone, 16, 2, "#444444", fmt.Sprintf("%s, %s", l.Path, l.End))
	}
	for _, f := range slices.Concat(h.Faults, h.Starved) {
		who := ""
		if f.Proc != 0 {
			who = fmt.Sprintf(" p%d", f.Proc)
		}
		p.bar(f.Kind+who, f.From, max(f.To, f.From), 3, 10, "#d9822b", f.Kind+" "+f.Znode)
	}
	return p.svg(fmt.Sprintf("%s, %v around %v", lock, pictureTime, time.Duration(at)), at)
}

// wait is one attempt until its lease or its end.
type wait struct {
	by       string
	from, to int64
}

// waits are all attempts to acquire a lock. Leaders do not say when theirs began.
func (h *History) waits(lock string) (all []wait) {
	open := make(map[string]int64)
	for _, e := range h.Events {
		if e.Path != lock {
			continue
		}
		switch e.What {
		case Called:
			open[e.By] = e.At
		case Granted, Failed:
			if from, called := open[e.By]; called {
				all = append(all, wait{e.By, from, e.At})
				delete(open, e.By)
			}
		default:
		}
	}
	for by, from := range open { // for ever, or until its process was killed
		all = append(all, wait{by, from, math.MaxInt64})
	}
	return all
}
