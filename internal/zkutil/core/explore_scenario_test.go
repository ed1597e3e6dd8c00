package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// A scenario is a course of events as a file. Comments say what must hold. The line "world" has the bounds, each other line a time and a step.
// The time counts from the start, in units by the servers' clock: T is 14400 units. "show" prints the state. Behind "----" stands what must
// be printed.

// header returns the line "world" of a course.
func (b *bounds) header(phase int64, r rate) string {
	return fmt.Sprintf("world lists=%d phase=%d clock=%d/%d grants=%d,%d path=%s clients=%d lone=%v waits=%v idles=%v works=%v leaves=%v renews=%v suspends=%v bound=%v",
		b.lists, phase, r.num, r.den, b.grants[0], b.grants[1], strings.Trim(strings.ReplaceAll(fmt.Sprint(b.servers()), " ", ","), "[]"), b.clients, b.lone, b.waits, b.idles, b.works, b.leaves, b.renews, b.suspends, b.isBound)
}

// parseHeader returns the world at the start of a scenario.
func parseHeader(line string, p *premise) (*world, error) {
	b, phase, r := bounds{faults: allFaults, writes: 99, most: 99}, int64(1), rate{1, 1}
	flags := map[string]*bool{
		"lone": &b.lone, "waits": &b.waits, "idles": &b.idles, "works": &b.works, "leaves": &b.leaves, "renews": &b.renews, "suspends": &b.suspends, "bound": &b.isBound,
	}
	for _, field := range strings.Fields(line)[1:] {
		name, value, _ := strings.Cut(field, "=")
		var numbers []int64
		for _, text := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == '/' }) {
			n, _ := strconv.ParseInt(text, 10, 64) // a flag has none
			numbers = append(numbers, n)
		}
		switch name {
		case "lists":
			b.lists = numbers[0]
		case "phase":
			phase = numbers[0]
		case "clock":
			r = rate{numbers[0], numbers[1]}
		case "grants":
			b.grants = [2]int64{numbers[0], numbers[1]}
		case "path":
			for _, n := range numbers {
				b.path = append(b.path, int(n))
			}
		case "clients":
			b.clients = int(numbers[0])
		default:
			is := flags[name]
			if is == nil {
				return nil, fmt.Errorf("unknown field %q", field)
			}
			*is = value == "true"
		}
	}
	return start(b.withDefaults(), p, phase, r), nil
}

// play runs a scenario, and returns what it prints.
func play(scenario string, p *premise) (printed string, err error) {
	var w *world
	for line := range strings.Lines(scenario) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
			continue
		case fields[0] == "world":
			if w, err = parseHeader(line, p); err != nil {
				return "", err
			}
			continue
		case w == nil || len(fields) != 2:
			return "", fmt.Errorf("not a step: %q", line)
		}
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return "", err
		}
		w.passUntil(w.began + at)
		if k := kind(fields[1]); fields[1] == "show" {
			printed += w.show()
		} else if !slices.Contains(w.acts(), k) {
			return "", fmt.Errorf("%q is not possible", strings.TrimSpace(line))
		} else {
			w = w.apply(k)
		}
	}
	return printed, nil
}

// show returns a state in words, with times in T since the start.
func (w *world) show() (text string) {
	of := func(t int64) string { return fmt.Sprintf("%.3f T", float64(t-w.began)/whole) }
	for i := range w.clients {
		c := &w.clients[i]
		text += fmt.Sprintf("%s: ", of(w.now))
		if w.bounds.clients > 1 {
			text += fmt.Sprintf("client %d: ", i)
		}
		switch {
		case c.isHolding() && c.core.Stands(w.time(c)):
			text += "holds, "
		default:
			text += "holds nothing, "
		}
		if c.isOwner && c.hold.Works > 0 && !c.isHolding() {
			text += "works, "
		}
		if c.core.until.IsZero() {
			text += "not trusted"
		} else {
			text += fmt.Sprintf("trusted until %s", of(c.byServers(c.core.until)))
		}
		if w.isAlive(i) {
			text += fmt.Sprintf(", session until %s", of(w.leader[i].expiry))
		} else {
			text += fmt.Sprintf(", session ended at %s", of(w.leader[i].expiry))
		}
		if l := w.line(i); l.isOpening {
			text += fmt.Sprintf(", dials server %d", l.server)
		} else {
			text += fmt.Sprintf(", on server %d", l.server)
		}
		text += "\n"
	}
	if v := w.violation(); v != "" {
		text += "VIOLATION: " + v + "\n"
	}
	return text
}

// The scenarios print what stands in their files, and no state in them violates exclusion.
func TestScenarios(t *testing.T) {
	testkit.Scenarios(t, "testdata/*.txt", func(scenario string) (string, error) { return play(scenario, nil) })
}
