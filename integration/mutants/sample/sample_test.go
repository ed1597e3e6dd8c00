package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write makes files, by name.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	return root
}

const source = `package p

const limit = 4

type list struct{ n, m int }

func (l *list) add(i int) {
	if i > limit && l.n < limit {
		l.n += i
	} else {
		l.m++
	}
	switch i {
	case 1:
		return
	}
}

func two() list {
	l := list{n: 1, m: 2}
	l.add(1)
	l.add(1)
	return l
}
`

// Each mutant is the file with a single change, which its key shows.
func TestMutantsOfAFile(t *testing.T) {
	root := write(t, map[string]string{"p.go": source})
	mutants, err := listFile(root, "p.go", []position{
		{"INVERT_LOGICAL", 8, 15}, {"CONDITIONALS_BOUNDARY", 8, 7}, {"CONDITIONALS_NEGATION", 8, 7}, {"INVERT_ASSIGNMENTS", 9, 7}, {"INCREMENT_DECREMENT", 11, 6},
	})
	require.NoError(t, err)
	var keys []string
	for _, m := range mutants {
		changed, err := m.apply(root)
		require.NoError(t, err)
		require.Equal(t, source[:m.pos]+m.text+source[m.end:], string(changed))
		keys = append(keys, strings.TrimPrefix(m.key.String(), "p.go "))
	}
	condition := "if i > limit && l.n < limit {"
	require.ElementsMatch(t, []string{
		"list.add\n-\t" + condition + "\n+\tif i >= limit && l.n < limit {\n",
		"list.add\n-\t" + condition + "\n+\tif i <= limit && l.n < limit {\n",
		"list.add\n-\t" + condition + "\n+\tif i > limit || l.n < limit {\n",
		"list.add\n-\tl.n += i\n+\tl.n -= i\n",
		"list.add\n-\tl.m++\n+\tl.m--\n",
		"list.add\n-\t" + condition + "\n+\t(omitted: " + condition + ")\n",
		"list.add\n-\tl.n += i\n+\t(omitted: l.n += i)\n",
		"list.add\n-\t} else {\n+\t(omitted: else {)\n",
		"list.add\n-\tl.m++\n+\t(omitted: l.m++)\n",
		"list.add\n-\tswitch i {\n+\t(omitted: switch i {)\n",
		"list.add\n-\tcase 1:\n+\t(omitted: case 1:)\n",
		"list.add\n-\treturn\n+\t(omitted: return)\n",
		"two\n-\tl := list{n: 1, m: 2}\n+\t(omitted: n: 1,)\n",
		"two\n-\tl := list{n: 1, m: 2}\n+\t(omitted: , m: 2)\n",
		"two\n-\tl.add(1)\n+\t(omitted: l.add(1))\n",
		"two #2\n-\tl.add(1)\n+\t(omitted: l.add(1))\n",
		"two\n-\treturn l\n+\t(omitted: return l)\n",
	}, keys)
}

// The key of a mutant is independent of changes above it. A paragraph of the list without its mutant is an error, and so is one
// without an argument.
func TestEquivalentMutantsAreNotDrawn(t *testing.T) {
	root := write(t, map[string]string{
		"p.go":     source,
		"moved.go": strings.Replace(source, "const", "// A comment.\nconst first = 1\n\nconst", 1),
	})
	all, err := listFile(root, "p.go", nil)
	require.NoError(t, err)
	moved, err := listFile(root, "moved.go", nil)
	require.NoError(t, err)
	for i := range moved {
		moved[i].key.file = "p.go"
	}
	listed := all[3].key.String() + "A reason.\nIn two lines.\n"
	for text, expected := range map[string]struct {
		known int
		fault string
	}{
		"":                          {0, ""},
		"# A comment.\n\n" + listed: {1, ""},
		listed + "\n" + all[5].key.String() + "Another.\n": {2, ""},
		all[3].key.String():                        {0, "an argument"},
		strings.Replace(listed, "p.go", "q.go", 1): {0, "that the code does not have"},
	} {
		file := filepath.Join(write(t, map[string]string{"list": text}), "list")
		for _, mutants := range [][]mutant{all, moved} {
			rest, known, err := withoutEquivalent(mutants, file)
			if expected.fault != "" {
				require.ErrorContains(t, err, expected.fault)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, expected.known, known)
			require.Len(t, rest, len(mutants)-known)
		}
	}
}

// module has a package low, and a package high above it whose tests notice mutants that low's tests miss.
func module(t *testing.T) *judge {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.25.0\n",
		"low/low.go": `package low

func Double(n int) int {
	for i := 0; i != 1; {
		i++
	}
	return n + n
}

func Half(n int) int { return n / 2 }

func Third(n int) int { return n / 3 }

func Fourth(n int) int { return n / 4 }
`,
		"low/low_test.go": `package low

import "testing"

func TestDouble(t *testing.T) {
	if Double(3) != 6 {
		t.Fail()
	}
}

func TestThird(t *testing.T) { Third(0) }
`,
		"high/high_test.go": `package high

import (
	"testing"

	"example.org/m/low"
)

func TestHalf(t *testing.T) {
	if low.Half(4) != 2 {
		t.Fail()
	}
}
`,
		"beside/beside_test.go": "package beside\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	j, err := load(t.Context(), root)
	require.NoError(t, err)
	return j
}

// replace returns the mutant of low.go in which one text stands for another.
func replace(t *testing.T, j *judge, old, text string) mutant {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(j.root, "low/low.go"))
	require.NoError(t, err)
	pos := strings.Index(string(src), old)
	require.NotEqual(t, -1, pos)
	before := string(src[:pos])
	return mutant{
		file: "low/low.go", pos: pos, end: pos + len(old), text: text,
		line: 1 + strings.Count(before, "\n"), column: pos - strings.LastIndex(before, "\n"),
	}
}

func TestVerdicts(t *testing.T) {
	j := module(t)
	require.NoError(t, j.measure(t.Context(), []string{"low"}, []string{"example.org/m/low"}))
	require.Equal(t, []string{"example.org/m/high"}, j.above("example.org/m/low"))
	j.grace, j.normal["example.org/m/low"] = 5*time.Second, time.Millisecond
	for name, test := range map[string]struct {
		old, text string
		expected  result
	}{
		"killed by its own package":  {"n + n", "n - n", result{state: failed, tests: []string{"TestDouble"}}},
		"killed by a package above":  {"n / 2", "n * 2", result{state: failed, tests: []string{"TestHalf"}, above: "example.org/m/high"}},
		"executed, and not noticed":  {"n / 3", "n * 3", result{state: passed}},
		"executed by no test":        {"n / 4", "n * 4", result{state: passed}},
		"hangs":                      {"i++", "i--; i++", result{state: timedOut, tests: []string{"TestDouble"}}},
		"does not compile":           {"n + n", "n + m", result{state: invalid}},
		"does not compile, untested": {"n / 4", "n / m", result{state: invalid}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := j.kill(t.Context(), replace(t, j, test.old, test.text))
			require.NoError(t, err)
			r.output = ""
			require.Equal(t, test.expected, r)
		})
	}
}

// A test that fails among others and passes alone met a busy machine. It kills no mutant, and hides none from later
// tests.
func TestUnsteadyTestsKillNothing(t *testing.T) {
	j := module(t)
	calm := filepath.Join(j.root, "low", "calm")
	makeCalm := func() { require.NoError(t, os.WriteFile(calm, nil, 0o600)) }
	require.NoError(t, os.WriteFile(filepath.Join(j.root, "low/busy_test.go"), []byte(`package low

import (
	"os"
	"testing"
)

func TestBusy(t *testing.T) {
	if _, err := os.Stat("calm"); err != nil {
		os.WriteFile("calm", nil, 0o600)
		t.Fail()
	}
}
`), 0o600))
	makeCalm()
	require.NoError(t, j.measure(t.Context(), []string{"low"}, []string{"example.org/m/low"}))
	for text, expected := range map[string]result{
		"n * 3":       {state: passed},
		"n / (n & 0)": {state: failed, tests: []string{"TestThird"}},
	} {
		require.NoError(t, os.Remove(calm))
		r, err := j.kill(t.Context(), replace(t, j, "n / 3", text))
		require.NoError(t, err)
		require.FileExists(t, calm)
		require.Equal(t, expected.state, r.state)
		require.Equal(t, expected.tests, r.tests)
	}
}

// Tests that fail without a defect would kill every mutant.
func TestFailureWithoutADefect(t *testing.T) {
	j := module(t)
	test := filepath.Join(j.root, "high/high_test.go")
	require.NoError(t, os.WriteFile(test, []byte("package high\n\nimport (\n\t\"testing\"\n\n\t_ \"example.org/m/low\"\n)\n\nfunc TestRed(t *testing.T) { t.Fail() }\n"), 0o600))
	err := j.measure(t.Context(), []string{"low"}, []string{"example.org/m/low"})
	require.ErrorContains(t, err, "the tests of example.org/m/high fail without a defect: TestRed")
}

func TestReasonOfAFailure(t *testing.T) {
	for output, expected := range map[string]result{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n--- FAIL: TestC (0.00s)\nFAIL\n":                                          {state: failed, tests: []string{"TestA", "TestC"}},
		"panic: TestA hangs: deadlock\n\ngoroutine 1":                                                                                      {state: failed, reason: "panic: TestA hangs: deadlock"},
		"fatal error: runtime: out of memory\n":                                                                                            {state: failed, reason: "fatal error: runtime: out of memory"},
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestA (1s)\n\t\tTestB/c_d (0s)\n\ngoroutine 5 [running]:\n\tTestZ (0x12)\n": {state: timedOut, tests: []string{"TestA", "TestB"}},
		"panic: test timed out after 30s\n\ngoroutine 9 [running]:\n":                                                                      {state: timedOut, reason: "test timed out"},
	} {
		r := classify(output)
		r.output = ""
		require.Equal(t, expected, r)
	}
}

// Every operator of gremlins has another token for every token, so no mutant equals the code.
func TestReplacementsDiffer(t *testing.T) {
	for name, tokens := range replacements() {
		for from, to := range tokens {
			require.NotEqual(t, from, to, name)
		}
	}
}
