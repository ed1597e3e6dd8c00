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
	// Extended supports TTLs: zookeeper.extendedTypesEnabled=true.
	Extended = "extended"
	// Plain, the default, doesn't support TTLs.
	Plain = "plain"
	// Reaping is Extended, and continuously removes empty containers and expired TTL
	// znodes, which the other kinds don't do during a test:
	// znode.container.checkIntervalMs.
	Reaping = "reaping"
)

// Case is a script for one idea, with the answers of a real ZooKeeper.
type Case struct {
	File  string // "create.txt"
	Name  string
	Lines []Line
}

// Line is one step of a Case.
type Line struct {
	Comments []string // comment lines above the step
	Step     Step
	Answers  []string // expected from [Runner.Play]
}

//go:embed testdata
var testdata embed.FS

// Cases returns the cases for a kind of server, in an order in which one fresh server can
// play them all.
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

// indent precedes an answer.
const indent = "    "

// FormatCases is the inverse of ParseCases.
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

// Play plays a case on a server and returns the case with the server's answers, and an
// error if the case has left the server changed.
func (c Case) Play(dial Dial) (Case, error) {
	r := NewRunner(dial)
	played := c
	played.Lines = slices.Clone(c.Lines)
	for i, line := range c.Lines {
		played.Lines[i].Answers = r.Play(line.Step)
	}
	return played, r.Close()
}
