package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	multiple   = 10      // of the time that the tests of a package take without a defect
	addressKiB = 4 << 20 // of each process, because a test that allocates for ever must fail
	outputMax  = 4 << 20
)

// pkg is a package of the module, as go list prints it.
type pkg struct {
	ImportPath, Dir                    string
	Module                             struct{ Path string }
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

// judge runs tests on mutants of a module.
type judge struct {
	root     string
	packages map[string]*pkg          // by import path
	normal   map[string]time.Duration // what the short tests of a package take; only packages with tests
	ownOnly  bool                     // no package is above another
	tests    string                   // an expression for the tests that judge; "": all
	grace    time.Duration            // of a limit, besides the multiple of the normal time
	blocks   coverage
}

// coverage has all blocks of statements, by file. Each block has the import paths of the packages whose tests execute it.
type coverage map[string]map[span]map[string]bool

type span struct{ line, column, endLine, endColumn int }

func (s span) has(line, column int) bool {
	return (line > s.line || line == s.line && column >= s.column) && (line < s.endLine || line == s.endLine && column <= s.endColumn)
}

// reaches reports whether the tests of a package execute the place of a mutant. A place outside all blocks, such as a
// constant, counts as executed.
func (c coverage) reaches(path string, m mutant) bool {
	isKnown := false
	for s, by := range c[m.file] {
		if s.has(m.line, m.column) {
			if by[path] {
				return true
			}
			isKnown = true
		}
	}
	return !isKnown
}

// add adds a profile of go test.
func (c coverage) add(path, module, profile string) error {
	for line := range strings.Lines(profile) {
		file, rest, ok := strings.Cut(strings.TrimPrefix(line, module+"/"), ":")
		if !ok || file == "mode" {
			continue
		}
		var s span
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &s.line, &s.column, &s.endLine, &s.endColumn, &statements, &count); err != nil {
			return fmt.Errorf("profile of %s: %q: %w", path, line, err)
		}
		if c[file] == nil {
			c[file] = map[span]map[string]bool{}
		}
		if c[file][s] == nil {
			c[file][s] = map[string]bool{}
		}
		if count > 0 {
			c[file][s][path] = true
		}
	}
	return nil
}

// load lists the packages of the module.
func load(ctx context.Context, root string) (*judge, error) {
	c := exec.CommandContext(ctx, "go", "list", "-json", "./...")
	c.Dir, c.Env = root, append(os.Environ(), "GOWORK=off")
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	j := &judge{root: root, packages: map[string]*pkg{}, normal: map[string]time.Duration{}, grace: 30 * time.Second, blocks: coverage{}}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		p := new(pkg)
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		j.packages[p.ImportPath] = p
	}
	return j, nil
}

// above returns the packages whose tests depend on a package, itself left out, the quickest first.
func (j *judge) above(path string) []string {
	var found []string
	for _, p := range j.packages {
		if _, hasTests := j.normal[p.ImportPath]; !hasTests || p.ImportPath == path || j.ownOnly {
			continue
		}
		if j.depends(slices.Concat(p.Imports, p.TestImports, p.XTestImports), path, map[string]bool{}) {
			found = append(found, p.ImportPath)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		return 2*int(j.normal[a].Milliseconds()-j.normal[b].Milliseconds()) + strings.Compare(a, b)
	})
	return found
}

func (j *judge) depends(imports []string, path string, seen map[string]bool) bool {
	return slices.ContainsFunc(imports, func(i string) bool {
		p := j.packages[i]
		if i == path || p == nil || seen[i] {
			return i == path
		}
		seen[i] = true
		return j.depends(p.Imports, path, seen)
	})
}

// measure runs the tests of the given packages and of all above them without a defect, and records their duration and
// coverage. A failure is an error.
func (j *judge) measure(ctx context.Context, dirs, paths []string) error {
	dir, err := os.MkdirTemp("", "measure")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	profile, binary := filepath.Join(dir, "profile"), filepath.Join(dir, "tests")
	covered := "-coverpkg=./" + strings.Join(dirs, "/...,./") + "/..."
	for _, p := range j.packages {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			j.normal[p.ImportPath] = 5 * time.Minute // while it is not known
		}
	}
	wanted := map[string]bool{}
	for _, path := range paths {
		for _, p := range append(j.above(path), path) {
			wanted[p] = j.normal[p] > 0
		}
	}
	for path, hasTests := range wanted {
		if !hasTests {
			continue
		}
		if _, err := j.build(ctx, path, binary, covered); err != nil {
			return err
		}
		start := time.Now()
		if r := j.test(ctx, path, binary, "-test.coverprofile="+profile); r.state != passed {
			return fmt.Errorf("the tests of %s fail without a defect: %s\n%s", path, r.by(), r.output)
		}
		j.normal[path] = time.Since(start)
		text, err := os.ReadFile(profile)
		if err := errors.Join(err, j.blocks.add(path, j.packages[path].Module.Path, string(text))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

type state int

const (
	passed state = iota
	failed
	timedOut
	invalid // does not compile
)

// result is the outcome of a run of tests, or of a mutant, for which passed means that it survived.
type result struct {
	state  state
	tests  []string // failed tests, or tests running at the end
	reason string   // if no test is known
	above  string   // the package of the tests, unless it is the own of the mutant
	output string
}

func (r result) by() string {
	return strings.TrimSpace(r.above + " " + strings.Join(r.tests, " ") + r.reason)
}

// kill judges a mutant by the tests of its package, then by those of the packages above.
func (j *judge) kill(ctx context.Context, m mutant) (r result, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	src, err := m.apply(j.root)
	if err != nil {
		return r, err
	}
	file, list := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	overlay := "-overlay=" + list
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(j.root, m.file): file}})
	if err := errors.Join(err, os.WriteFile(file, src, 0o600), os.WriteFile(list, replace, 0o600)); err != nil {
		return r, err
	}
	own, binary := j.owner(m.file), filepath.Join(dir, "tests")
	for _, path := range slices.Insert(j.above(own), 0, own) {
		if path != own && !j.blocks.reaches(path, m) {
			continue
		}
		compiles, err := j.build(ctx, path, binary, overlay)
		if err != nil || !compiles {
			return result{state: invalid}, err
		}
		if j.normal[path] == 0 || !j.blocks.reaches(path, m) {
			continue
		}
		if r = j.notice(ctx, path, binary); r.state != passed {
			if path != own {
				r.above = path
			}
			return r, ctx.Err()
		}
	}
	return r, ctx.Err()
}

// notice runs tests of a package on a mutant until one fails that fails again alone. A test that fails or hangs only
// in the company of others may suffer from a busy machine, and kills no mutant. The others then run without it.
func (j *judge) notice(ctx context.Context, path, binary string) result {
	var unsteady []string
	for {
		var skip []string
		if len(unsteady) > 0 {
			skip = []string{"-test.skip=" + exactly(unsteady)}
		}
		r := j.test(ctx, path, binary, skip...)
		if r.state == passed {
			return r
		}
		if len(r.tests) > 0 {
			skip = []string{"-test.run=" + exactly(r.tests)}
		}
		again := j.test(ctx, path, binary, skip...)
		if again.state != passed || len(r.tests) == 0 {
			return again
		}
		unsteady = append(unsteady, r.tests...)
	}
}

func exactly(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// owner returns the import path of a file's package, or "" if the file is not built here.
func (j *judge) owner(file string) string {
	for _, p := range j.packages {
		if p.Dir == filepath.Join(j.root, filepath.Dir(file)) && slices.Contains(p.GoFiles, filepath.Base(file)) {
			return p.ImportPath
		}
	}
	return ""
}

// build builds the tests of a package, if any, and reports whether they compile.
func (j *judge) build(ctx context.Context, path, binary string, flags ...string) (bool, error) {
	args := append([]string{"test", "-c", "-vet=off", "-p=1", "-ldflags=-w", "-o", binary}, flags...)
	c := exec.CommandContext(ctx, "go", append(args, path)...)
	c.Dir, c.Env = j.root, append(os.Environ(), "GOWORK=off")
	out, err := c.CombinedOutput()
	if err != nil && regexp.MustCompile(`(?m)^\S+\.go:\d+:\d+: `).Match(out) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("build the tests of %s: %w\n%s", path, err, out)
	}
	return true, nil
}

// test runs the short tests of a package, with further flags.
func (j *judge) test(ctx context.Context, path, binary string, flags ...string) result {
	limit := multiple*j.normal[path] + j.grace
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute) // for a process that can't even end itself
	defer cancel()
	args := []string{
		"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, addressKiB), "sh", binary,
		"-test.run=" + j.tests, "-test.short", "-test.failfast", "-test.paniconexit0", "-test.cpu=1", "-test.parallel=8", "-test.timeout=" + limit.String(),
	}
	c := exec.CommandContext(ctx, "sh", append(args, flags...)...)
	c.Dir, c.Env = j.packages[path].Dir, append(os.Environ(), "GOWORK=off", "GOGC=400", "GOMEMLIMIT=2GiB")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its tests start processes
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	var out bounded
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err == nil {
		return result{state: passed}
	}
	r := classify(out.String())
	if r.state == failed && out.Len() == outputMax || ctx.Err() != nil {
		r.state = timedOut // a guess, because the end of the output is missing
	}
	return r
}

// classify finds the reason for the failure of tests in their output.
func classify(output string) result {
	r := result{state: failed, output: output}
	if regexp.MustCompile(`(?m)^panic: test timed out`).MatchString(output) {
		r.state = timedOut
		_, running, _ := strings.Cut(output, "running tests:") // there may be none, as before or after all tests
		running, _, _ = strings.Cut(running, "\n\n")
		if r.tests = names(`(?m)^\s*(Test\w+)\S* \(`, running); len(r.tests) == 0 {
			r.reason = "test timed out"
		}
		return r
	}
	if r.tests = names(`(?m)^--- FAIL: (\w+)`, output); len(r.tests) == 0 {
		r.reason = strings.Join(names(`(?m)^((?:panic|fatal error): .*)`, output), " ")
	}
	return r
}

// names returns the different first groups of a pattern's matches.
func names(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(found, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

// bounded keeps the first outputMax bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, outputMax-b.Len()))])
	return len(p), nil
}
