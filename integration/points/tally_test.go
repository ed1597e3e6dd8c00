package points_test

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// outcome is the result of a job.
type outcome struct {
	kind     kind
	tries    int
	struck   bool
	answered bool // of a killed connection: the answer was sent before
	left     bool
	expired  bool   // its znodes expired with the session, which Close could not end
	failure  string // "": everything held
}

// tally adds outcomes up.
type tally struct {
	mu       sync.Mutex // protects what is below
	done     int
	faults   [kinds]int
	answered int
	repeated int
	left     int
	expired  int
	failed   int
	failures []string // the first of them
}

// enoughFailures bounds what is shown.
const enoughFailures = 10

// add returns the number of outcomes, and of failures among them.
func (t *tally) add(o outcome) (done, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.repeated += o.tries - 1
	if o.struck {
		t.faults[o.kind]++
	}
	if o.answered {
		t.answered++
	}
	if o.left {
		t.left++
	}
	if o.expired {
		t.expired++
	}
	if o.failure != "" {
		t.failed++
		if t.failed <= enoughFailures {
			t.failures = append(t.failures, o.failure)
		}
	}
	return t.done, t.failed
}

// line is the summary.
func (t *tally) line(scenarios []scenario, points [][]point, took time.Duration) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for i, at := 0, -1; i < len(scenarios); i++ {
		if at < 0 || scenarios[i].part != scenarios[at].part {
			at = i
			n := 0
			for k, sc := range scenarios {
				if sc.part == scenarios[at].part {
					n += len(points[k])
				}
			}
			parts = append(parts, fmt.Sprintf("%s %d", scenarios[at].part, n))
		}
	}
	return fmt.Sprintf("points: %d scenarios, %d points (%s), %d rounds, %d clients side by side: %d replies lost, "+
		"%d requests dropped, %d connections killed (%d after the answer), %d plays repeated, leftovers %d, failures %d, "+
		"%d plays left to the expiry of a session whose close was lost, %v",
		len(scenarios), count(points), strings.Join(parts, ", "), *rounds, side, t.faults[replyLost],
		t.faults[requestDropped], t.faults[connectionKilled], t.answered, t.repeated, t.left, t.failed, t.expired, took.Round(time.Second))
}
