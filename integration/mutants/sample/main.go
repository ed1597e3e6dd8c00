// Command sample measures which defects the tests of the library notice. It lists the defects that another tool would plant,
// adds omissions (a statement, a case, an else, a field of a literal or an option left out), draws some by a seed, and plants
// them one by one with go test -overlay. A mutant is killed if the short tests of its package fail, or those of a package
// above. The list covers the engine and the recipes, without zktest.
//
// The operators are all those of gremlins, so that the choice does not favour these tests. Every surviving mutant of a fresh
// seed needs a test, or an argument in equivalent.txt why no test could notice it. Mutants listed there are not drawn. A
// paragraph that matches no mutant of the current code is an error.
//
// What counts:
//   - A mutant that does not compile is replaced by the next one of the draw.
//   - A package may take ten times as long as without a defect, and half a minute more.
//   - The tests that fail, or were running at that time, run again alone, in the same limit. Only if they fail or hang
//     again the mutant is killed. If not, the other tests of the package have their turn. So a slow machine kills no
//     mutant, and no timeout is left out.
//   - Tests that do not execute the place of a mutant can't notice the mutant, and are not run.
//   - Tests that fail without a defect end the run before the first mutant.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	root       string
	equivalent string
	dirs       []string
	seed       uint64
	size       int
	least      float64
	only       string
	tests      string
	own        bool
	workers    int
}

func main() {
	o := options{dirs: []string{"internal/zkutil", "internal/proto", "recipes"}}
	flag.StringVar(&o.root, "root", ".", "the root of the module")
	flag.StringVar(&o.equivalent, "equivalent", "integration/mutants/sample/equivalent.txt", "the list of mutants that no test can notice")
	flag.Uint64Var(&o.seed, "seed", 0, "of the draw; 0: a new one")
	flag.IntVar(&o.size, "n", 200, "how many mutants are planted")
	flag.Float64Var(&o.least, "least", 90, "percent of them that the tests must kill")
	flag.StringVar(&o.only, "only", "", "draw only from files that match this expression")
	flag.StringVar(&o.tests, "tests", "", "judge by the tests whose names match this expression alone")
	flag.BoolVar(&o.own, "own", false, "judge by the tests of a mutant's own package alone")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "mutants at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, out io.Writer) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	j, err := load(ctx, root)
	if err != nil {
		return err
	}
	j.ownOnly, j.tests = o.own, o.tests
	all, err := o.list(ctx, j)
	if err != nil {
		return err
	}
	mutants, known, err := withoutEquivalent(all, o.equivalent)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !only.MatchString(m.file) })
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1e6
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(mutants), func(a, b int) { mutants[a], mutants[b] = mutants[b], mutants[a] })
	fmt.Fprintf(out, "seed %d: %d of %d mutants; %d more are listed as equivalent\n", o.seed, min(o.size, len(mutants)), len(mutants), known)

	var paths []string
	for _, m := range mutants[:min(2*o.size, len(mutants))] { // some do not compile
		paths = append(paths, j.owner(m.file))
	}
	slices.Sort(paths)
	start := time.Now()
	if err := j.measure(ctx, o.dirs, slices.Compact(paths)); err != nil {
		return err
	}
	fmt.Fprintf(out, "all tests pass without a defect, in %v\n", time.Since(start).Round(time.Second))
	return o.plant(ctx, j, mutants, out)
}

// list returns all mutants in files that are built here, in order.
func (o options) list(ctx context.Context, j *judge) ([]mutant, error) {
	var all []mutant
	for _, dir := range o.dirs {
		positions, err := listGremlins(ctx, j.root, dir)
		if err != nil {
			return nil, err
		}
		err = filepath.WalkDir(filepath.Join(j.root, dir), func(path string, _ os.DirEntry, err error) error {
			file, _ := filepath.Rel(j.root, path)
			if err != nil || j.owner(file) == "" || strings.HasPrefix(file, "recipes/zktest/") {
				return err
			}
			mutants, err := listFile(j.root, file, positions[file])
			all = append(all, mutants...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// plant judges mutants until size of them compiled, and reports them in the order of the draw.
func (o options) plant(ctx context.Context, j *judge, mutants []mutant, out io.Writer) error {
	type verdict struct {
		result
		err error
	}
	verdicts := make([]chan verdict, len(mutants))
	for i := range verdicts {
		verdicts[i] = make(chan verdict, 1)
	}
	ctx, stop := context.WithCancel(ctx)
	next := make(chan int)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	workers.Go(func() { // ends with ctx, at the latest
		defer close(next)
		for i := range mutants {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	for range o.workers {
		workers.Go(func() { // until next is closed
			for i := range next {
				r, err := j.kill(ctx, mutants[i])
				verdicts[i] <- verdict{r, err}
			}
		})
	}

	var killed, above, hung, judged, invalids int
	var survivors strings.Builder
	for i := 0; i < len(mutants) && judged < o.size; i++ {
		v, m := <-verdicts[i], mutants[i]
		switch {
		case v.err != nil:
			return v.err
		case v.state == invalid:
			invalids++
			continue
		case v.state == passed:
			fmt.Fprintf(&survivors, "# line %d\n%v\n", m.line, m.key)
			fmt.Fprintf(out, "survived  %s:%d %s -> %s\n", m.file, m.line, m.key.before, m.key.after)
		default:
			killed++
			fmt.Fprintf(out, "killed    %s:%d by %s\n", m.file, m.line, v.by())
		}
		if v.above != "" {
			above++
		}
		if v.state == timedOut {
			hung++
		}
		judged++
	}
	score := 100 * float64(killed) / float64(max(judged, 1))
	fmt.Fprintf(out, "\n%s\nseed %d: %d of %d killed, %.1f %%: %d by their own package, %d by those above, %d of both because they hang; %d did not compile\n",
		survivors.String(), o.seed, killed, judged, score, killed-above, above, hung, invalids)
	if score < o.least && judged > 0 {
		return fmt.Errorf("%.1f %% killed, less than %.1f %%", score, o.least)
	}
	return nil
}

// withoutEquivalent returns the mutants that the list in a file does not name, and the number that it names. The list
// consists of paragraphs: a key as in the report, then the argument. Lines that begin with # are comments.
func withoutEquivalent(all []mutant, file string) ([]mutant, int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAll(text, nil)
	listed := map[string]bool{}
	for p := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.SplitAfter(strings.TrimSpace(p)+"\n", "\n")
		if len(lines) == 2 && lines[0] == "\n" {
			continue
		}
		if len(lines) < 5 || !strings.HasPrefix(lines[1], "-\t") || !strings.HasPrefix(lines[2], "+\t") {
			return nil, 0, fmt.Errorf("%s: want a place, a line before, a line after and an argument, not %q", file, p)
		}
		listed[strings.Join(lines[:3], "")] = true
	}
	known := len(listed)
	rest := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		is := listed[m.key.String()]
		delete(listed, m.key.String())
		return is
	})
	for k := range listed {
		return nil, 0, fmt.Errorf("%s names a mutant that the code does not have:\n%s", file, k)
	}
	return rest, known, nil
}
