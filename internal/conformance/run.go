package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Run plays all cases of a kind on an unused server. Each case is a subtest, which fails if
// the server differs from the real one.
func Run(t *testing.T, kind string, dial Dial) {
	t.Helper()
	cases, err := Cases(kind)
	if err != nil || len(cases) == 0 {
		t.Fatalf("%d cases of kind %q: %v", len(cases), kind, err)
	}
	for _, c := range cases {
		t.Run(c.File+"/"+c.Name, func(t *testing.T) {
			played, err := c.Play(dial)
			if err != nil {
				t.Error(err)
			}
			for i, line := range c.Lines {
				if got := played.Lines[i].Answers; !slices.Equal(line.Answers, got) {
					t.Errorf("step %d of %s, %q, differs; so far:\n%s", i+1, c.File, c.Name, comparison(played.Lines[:i+1], line.Answers))
					return
				}
			}
		})
	}
}

// comparison shows the played steps, and for the last step the expected answers, too.
func comparison(played []Line, want []string) string {
	var b strings.Builder
	for i, line := range played {
		fmt.Fprintln(&b, line.Step)
		if i == len(played)-1 {
			for _, answer := range want {
				fmt.Fprintln(&b, "  - "+answer)
			}
		}
		mark := indent
		if i == len(played)-1 {
			mark = "  + "
		}
		for _, answer := range line.Answers {
			fmt.Fprintln(&b, mark+answer)
		}
	}
	return b.String()
}
