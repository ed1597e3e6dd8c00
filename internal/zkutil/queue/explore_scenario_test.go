package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// A scenario is a file with a course of events. Comments say what must hold. The line "world" says who takes part, and each other line is
// an event. "show" prints the state. The text below "----" is what must be printed.

// course is a course that the explorer found.
type course struct {
	*cast
	events []event
}

// String returns the course as a scenario.
func (c *course) String() string {
	text := fmt.Sprintf("world kinds=%s sessions=%s joined=%d late=%v slow=%v permits=%d\n",
		c.kinds, strings.Trim(strings.ReplaceAll(fmt.Sprint(c.sessions), " ", ","), "[]"), c.joined, c.isLate, c.isSlow, c.permits)
	for _, e := range c.events {
		text += e.String() + "\n"
	}
	return text + "show\n"
}

// parseHeader returns the world at the start of a scenario.
func parseHeader(line string, p premise) (*world, error) {
	c := cast{rule: Exclusive, faults: []fault{reset, distrust, remove}, most: 99, premise: p}
	for _, field := range strings.Fields(line)[1:] {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "kinds":
			if c.kinds = value; strings.ContainsAny(value, "ru") {
				c.rule = ReadWrite
			}
		case "sessions":
			for text := range strings.SplitSeq(value, ",") {
				n, err := strconv.Atoi(text)
				if err != nil {
					return nil, err
				}
				c.sessions = append(c.sessions, n)
			}
		case "joined":
			c.joined, _ = strconv.Atoi(value)
		case "late":
			c.isLate = value == "true"
		case "permits":
			if c.permits, _ = strconv.Atoi(value); c.permits > 0 {
				c.rule = UpTo(c.permits)
			}
		case "slow":
			c.isSlow = value == "true"
		default:
			return nil, fmt.Errorf("unknown field %q", field)
		}
	}
	return start(&c), nil
}

// play runs a scenario, and returns what it prints.
func play(scenario string, p premise) (printed string, err error) {
	var w *world
	for line := range strings.Lines(scenario) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "world "):
			if w, err = parseHeader(line, p); err != nil {
				return "", err
			}
			continue
		case w == nil:
			return "", fmt.Errorf("no world for %q", line)
		case line == "show":
			printed += w.show()
			continue
		}
		events, _ := w.steps()
		i := slices.IndexFunc(events, func(e event) bool { return e.String() == line })
		if i < 0 {
			return printed, fmt.Errorf("%q is not possible, only %v", line, events)
		}
		w = w.apply(events[i])
	}
	return printed, nil
}

// show returns a state in words.
func (w *world) show() (text string) {
	nodes := w.tree(int8(len(w.log)))
	_, queue := w.queueOf(nodes)
	var names []string
	for _, i := range queue {
		names = append(names, letter(i))
	}
	text = "queue: " + strings.Join(names, " ") + "\n"
	for i := range w.sessions {
		text += letter(i) + " " + w.describe(i) + "\n"
	}
	if w.wrong != "" {
		text += "VIOLATION: " + w.wrong + "\n"
	}
	return text
}

func (w *world) describe(i int) string {
	c := &w.contenders[i]
	switch c.phase {
	case listing:
		return "lists the queue"
	case watching:
		return "asks for a watch on " + letter(int(c.blocker))
	case waiting:
		return "waits for " + letter(int(c.blocker))
	case claiming:
		return "has its turn"
	case proving:
		return "has its turn, and proves its session"
	case holding:
		return "holds the lock"
	case done:
		return "is out"
	default:
		return "is not there yet"
	}
}

// The scenarios print what stands in their files, and no state in them violates exclusion.
func TestScenarios(t *testing.T) {
	testkit.Scenarios(t, "testdata/turn/*.txt", func(scenario string) (string, error) { return play(scenario, "") })
}
