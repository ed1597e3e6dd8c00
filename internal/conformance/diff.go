package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// DiffError is a step for which two servers gave different answers.
type DiffError struct {
	Seed  uint64 // the seed of Random; 0 for other steps
	Steps []Line // up to the step that differs, with the first server's answers
	Other []string
}

// Error returns the seed, the step's number and the latest steps.
func (d *DiffError) Error() string {
	from := max(0, len(d.Steps)-20)
	return fmt.Sprintf("seed %d, step %d: the second server (+) differs from the first (-):\n%s",
		d.Seed, len(d.Steps), d.text(from))
}

// Script returns all of the steps, as a case.
func (d *DiffError) Script() string { return d.text(0) }

func (d *DiffError) text(from int) string {
	shown := slices.Clone(d.Steps[from:])
	last := &shown[len(shown)-1]
	want := last.Answers
	last.Answers = d.Other
	return comparison(shown, want)
}

// Diff plays the random steps of a seed, with about the given number of requests, on two
// servers side by side. The error is a *DiffError for the first step at which they differ.
func Diff(a, b Dial, seed uint64, requests int) error {
	err := Compare(a, b, Random(seed, requests))
	if difference, ok := zkutil.AsType[*DiffError](err); ok {
		difference.Seed = seed
	}
	return err
}

// Compare plays steps on two servers side by side, like Diff.
func Compare(a, b Dial, steps []Step) error {
	first, second := NewRunner(a), NewRunner(b)
	difference := compare(first, second, steps)
	// Close both at the same time: a session of either may be about to expire.
	closed := make(chan error, 1) // joined below
	go func() { closed <- second.Close() }()
	err := errors.Join(first.Close(), <-closed)
	if difference != nil {
		return difference
	}
	return err
}

func compare(first, second *Runner, steps []Step) error {
	todo, done := make(chan Step), make(chan []string)
	go func() { // plays on the second server; ends with todo, joined below
		defer close(done)
		for step := range todo {
			done <- second.Play(step)
		}
	}()
	defer func() {
		close(todo)
		<-done
	}()
	var played []Line
	for _, step := range steps {
		todo <- step
		line := Line{Step: step, Answers: first.Play(step)}
		other := <-done
		played = append(played, line)
		if !slices.Equal(line.Answers, other) {
			return &DiffError{Steps: played, Other: other}
		}
		if i := slices.IndexFunc(other, func(s string) bool { return strings.HasPrefix(s, "!") }); i >= 0 {
			return fmt.Errorf("both servers, at step %d, %s: %s", len(played), step, other[i])
		}
	}
	return nil
}

// Shrink returns a short selection of the steps that still shows a difference, and the
// difference shown. It plays at most tries selections.
func Shrink(a, b Dial, found *DiffError, tries int) *DiffError {
	for size := len(found.Steps) / 2; size > 0; size /= 2 {
		for at := len(found.Steps) - 1 - size; at >= 0 && tries > 0; at -= size {
			tries--
			err := Compare(a, b, found.without(at, size))
			if next, ok := zkutil.AsType[*DiffError](err); ok {
				next.Seed = found.Seed
				found = next
				at = min(at, len(found.Steps)-1)
			}
		}
	}
	return found
}

// without returns the steps except size steps from at on.
func (d *DiffError) without(at, size int) []Step {
	steps := make([]Step, 0, len(d.Steps)-size)
	for i, line := range d.Steps {
		if i < at || i >= at+size {
			steps = append(steps, line.Step)
		}
	}
	return steps
}
