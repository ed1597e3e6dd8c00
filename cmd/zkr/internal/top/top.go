// Package top is a live view of all locks and elections below a path, those with the longest waits first.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// Config is what to show.
type Config struct {
	Client *recipes.Client
	Root   string
	Every  time.Duration
}

// row is one lock.
type row struct {
	path    string
	kind    string
	holders []inspect.Contender
	waiters int
	longest time.Duration // of the waits
}

// frame is what was read at a moment.
type frame struct {
	at   time.Time
	rows []row
	err  error // of some paths, or of all
}

// read returns the locks, the longest waits first, and then by path.
func read(ctx context.Context, cfg Config) frame {
	f := frame{at: time.Now()}
	for queue, err := range inspect.Walk(ctx, cfg.Client, cfg.Root) {
		if err != nil {
			f.err = err
			continue
		}
		f.rows = append(f.rows, newRow(queue, f.at))
	}
	slices.SortFunc(f.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.longest, a.longest), cmp.Compare(a.path, b.path))
	})
	return f
}

func newRow(queue inspect.Queue, now time.Time) row {
	r := row{path: queue.Path, kind: queue.Kind}
	for _, c := range queue.Contenders {
		if c.Holds {
			r.holders = append(r.holders, c)
			continue
		}
		r.waiters++
		if !c.Since.IsZero() {
			r.longest = max(r.longest, now.Sub(c.Since))
		}
	}
	return r
}

// holder is the first of the holders with how many more there are.
func (r row) holder() string {
	if len(r.holders) == 0 {
		return "-"
	}
	first := r.holders[0]
	text := fmt.Sprintf("%q", first.ID)
	if first.Revoked {
		text = "(revoked)"
	}
	if more := len(r.holders) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// since is for how long the first holder has been in the queue.
func (r row) since(now time.Time) string {
	if len(r.holders) == 0 || r.holders[0].Since.IsZero() {
		return "-"
	}
	return short(now.Sub(r.holders[0].Since))
}

func (r row) wait() string {
	if r.waiters == 0 {
		return "-"
	}
	return short(r.longest)
}

func short(d time.Duration) string { return max(0, d).Round(time.Second).String() }

// Lines prints a line for each lock, again and again until ctx ends.
func Lines(ctx context.Context, out io.Writer, cfg Config) error {
	for {
		f := read(ctx, cfg)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.print(out); err != nil {
			return err
		}
		select {
		case <-time.After(cfg.Every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f frame) print(out io.Writer) error {
	var text strings.Builder
	at := f.at.Format(time.RFC3339)
	for _, r := range f.rows {
		fmt.Fprintf(&text, "%s %s %s waiting=%d longest=%s holder=%s for=%s\n", at, r.path, r.kind, r.waiters, r.wait(), r.holder(), r.since(f.at))
	}
	if len(f.rows) == 0 && f.err == nil {
		fmt.Fprintf(&text, "%s no locks\n", at)
	}
	if f.err != nil {
		fmt.Fprintf(&text, "%s error: %v\n", at, f.err)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
