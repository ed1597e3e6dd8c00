package conformance

import (
	"bufio"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// The kinds of servers that cases are for; see [Cases].
const (
	// Extended knows TTLs: zookeeper.extendedTypesEnabled=true.
	Extended = "extended"
	// Plain doesn't, as is the default.
	Plain = "plain"
	// Reaping is Extended and looks for containers and TTLs to remove all the time,
	// where the others don't within a test: znode.container.checkIntervalMs.
	Reaping = "reaping"
)

// Case is a script that shows one idea, with what a real ZooKeeper answered.
type Case struct {
	File  string // "create.txt"
	Name  string
	Lines []Line
}

// Line is one step of a Case.
type Line struct {
	Comments []string // above the step
	Step     Step
	Answers  []string // what [Runner.Play] has to return
}

//go:embed testdata
var testdata embed.FS

// Cases are those for a kind of server, in an order in which they can be played on
// one server, fresh at the start.
func Cases(kind string) ([]Case, error) {
	var cases []Case
	files, err := fs.Glob(testdata, "testdata/"+kind+"/*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := testdata.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parsed, err := ParseCases(name[strings.LastIndex(name, "/")+1:], string(text))
		if err != nil {
			return nil, err
		}
		cases = append(cases, parsed...)
	}
	return cases, nil
}

// ParseCases reads a file of cases:
//
//	== the name of a case
//	# a comment
//	a create /x
//	    a ok z+1 path=/x
func ParseCases(file, text string) ([]Case, error) {
	var cases []Case
	var comments []string
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "== "); ok {
			cases = append(cases, Case{File: file, Name: name})
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if len(cases) == 0 {
			return nil, fmt.Errorf("%s:%d: no case yet", file, number)
		}
		c := &cases[len(cases)-1]
		answer, isAnswer := strings.CutPrefix(line, indent)
		switch {
		case strings.HasPrefix(line, "#"):
			comments = append(comments, line)
		case isAnswer && len(c.Lines) == 0:
			return nil, fmt.Errorf("%s:%d: an answer to nothing", file, number)
		case isAnswer:
			last := &c.Lines[len(c.Lines)-1]
			last.Answers = append(last.Answers, answer)
		default:
			step, err := ParseStep(line)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, number, err)
			}
			c.Lines = append(c.Lines, Line{Comments: comments, Step: step})
			comments = nil
		}
	}
	return cases, lines.Err()
}

// indent stands before an answer.
const indent = "    "

// FormatCases is the opposite of ParseCases.
func FormatCases(cases []Case) string {
	var b strings.Builder
	for i, c := range cases {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "== %s\n", c.Name)
		for _, line := range c.Lines {
			for _, comment := range line.Comments {
				fmt.Fprintln(&b, comment)
			}
			fmt.Fprintln(&b, line.Step)
			for _, answer := range line.Answers {
				fmt.Fprintln(&b, indent+answer)
			}
		}
	}
	return b.String()
}

// Play plays a case on a server and returns it with the answers that came, and an
// error if the server wasn't left as it was found.
func (c Case) Play(dial Dial) (Case, error) {
	r := NewRunner(dial)
	played := c
	played.Lines = slices.Clone(c.Lines)
	for i, line := range c.Lines {
		played.Lines[i].Answers = r.Play(line.Step)
	}
	return played, r.Close()
}
