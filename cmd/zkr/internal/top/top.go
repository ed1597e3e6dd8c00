// Package top is a live view of all locks and elections below a path, those with the longest waits first.
package top

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// Config is what to show.
type Config struct {
	Client *recipes.Client
	Root   string
	Every  time.Duration
	IsOnce bool
	IsJSON bool        // where there is no screen
	Report func(error) // is called by Lines for each error about a path
}

// Summary is one lock.
type Summary struct {
	Path    string        `json:"path"`
	Kind    string        `json:"kind"`
	Holders []Holder      `json:"holders"`
	Waiting int           `json:"waiting"`
	Longest time.Duration `json:"-"` // of the waits
}

// Holder is a holder of a lock.
type Holder struct {
	ID        string        `json:"id"`
	IsRevoked bool          `json:"revoked"`
	For       time.Duration `json:"-"`             // since it joined the queue; -1: unknown
	IsLasting bool          `json:"not_ephemeral"` // its znode stays until a client deletes it
}

// MarshalJSON has times as seconds, which programs can compare.
func (s Summary) MarshalJSON() ([]byte, error) {
	type shown Summary
	return json.Marshal(struct {
		shown
		LongestSeconds float64 `json:"longest_seconds"`
	}{shown(s), s.Longest.Seconds()})
}

// MarshalJSON has times as seconds.
func (h Holder) MarshalJSON() ([]byte, error) {
	type shown Holder
	return json.Marshal(struct {
		shown
		ForSeconds float64 `json:"for_seconds"`
	}{shown(h), max(0, h.For).Seconds()})
}

// Summarize summarizes queues, the longest waits first, then the most waiters, then by path, in which numbers count as
// numbers.
func Summarize(queues []inspect.Queue, now time.Time) []Summary {
	rows := make([]Summary, 0, len(queues))
	for _, queue := range queues {
		rows = append(rows, summarize(queue, now))
	}
	slices.SortFunc(rows, func(a, b Summary) int {
		return cmp.Or(cmp.Compare(b.Longest, a.Longest), cmp.Compare(b.Waiting, a.Waiting), comparePaths(a.Path, b.Path))
	})
	return rows
}

func summarize(queue inspect.Queue, now time.Time) Summary {
	s := Summary{Path: queue.Path, Kind: queue.Kind, Holders: []Holder{}}
	for _, c := range queue.Contenders {
		age := time.Duration(-1)
		if !c.Since.IsZero() {
			age = max(0, now.Sub(c.Since)).Round(time.Second)
		}
		if c.Holds {
			s.Holders = append(s.Holders, Holder{c.ID, c.Revoked, age, c.NotEphemeral})
			continue
		}
		s.Waiting++
		s.Longest = max(s.Longest, age)
	}
	return s
}

// comparePaths compares numbers in paths by their value.
func comparePaths(a, b string) int {
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' }
	number := func(s string) (digits string) {
		n := 0
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		return s[:n]
	}
	for a != "" && b != "" {
		x, y := number(a), number(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		p, q := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q), cmp.Compare(len(x), len(y))); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// Table has a heading and a line for each lock.
func Table(rows []Summary) string {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WAITING\tLONGEST\tHELD\tKIND\tHOLDER\tPATH")
	for _, r := range rows {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Waiting, r.wait(), r.held(), r.Kind, r.holder(), screen.Field(r.Path))
	}
	_ = table.Flush() // into memory
	return text.String()
}

// holder is the first of the holders with how many more there are.
func (s Summary) holder() string {
	if len(s.Holders) == 0 {
		return "-"
	}
	first := s.Holders[0]
	text := screen.Quote(first.ID)
	if first.IsRevoked {
		text = "(revoked)"
	}
	if first.IsLasting {
		text += " (not ephemeral)"
	}
	if more := len(s.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// held is the time of the first holder in the queue.
func (s Summary) held() string {
	if len(s.Holders) == 0 || s.Holders[0].For < 0 {
		return "-"
	}
	return s.Holders[0].For.String()
}

func (s Summary) wait() string {
	if s.Waiting == 0 {
		return "-"
	}
	return s.Longest.String()
}

// frame is what was read at a moment.
type frame struct {
	at   time.Time
	rows []Summary
	errs []error // of some paths, or of all
}

func read(ctx context.Context, cfg Config) frame {
	f := frame{at: time.Now()}
	var queues []inspect.Queue
	for queue, err := range inspect.Walk(ctx, cfg.Client, cfg.Root) {
		if err != nil {
			f.errs = append(f.errs, err)
			continue
		}
		queues = append(queues, queue)
	}
	f.rows = Summarize(queues, f.at)
	return f
}

// Lines prints a line for each lock, or an array in JSON, once or again and again until ctx ends. An error about a path is reported
// when it occurs, and not again while it lasts. If a single look finds no lock, Lines returns the last error.
func Lines(ctx context.Context, out io.Writer, cfg Config) error {
	var known map[string]bool // the errors of the look before
	for {
		f := read(ctx, cfg)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if cfg.IsJSON {
			if err := json.NewEncoder(out).Encode(f.rows); err != nil {
				return err
			}
		} else if err := f.print(out); err != nil {
			return err
		}
		var last error
		if n := len(f.errs); n > 0 && cfg.IsOnce && len(f.rows) == 0 {
			f.errs, last = f.errs[:n-1], f.errs[n-1]
		}
		known = f.report(cfg.Report, known)
		if cfg.IsOnce {
			return last
		}
		select {
		case <-time.After(cfg.Every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// report reports the errors that are not known yet, and returns all.
func (f frame) report(report func(error), known map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, err := range f.errs {
		text := err.Error()
		if !known[text] && !all[text] {
			report(err)
		}
		all[text] = true
	}
	return all
}

func (f frame) print(out io.Writer) error {
	var text strings.Builder
	at := f.at.Format(time.RFC3339)
	for _, r := range f.rows {
		fmt.Fprintf(&text, "%s %s %s waiting=%d longest=%s holder=%s for=%s\n", at, screen.Field(r.Path), r.Kind, r.Waiting, r.wait(), r.holder(), r.held())
	}
	if len(f.rows) == 0 && len(f.errs) == 0 {
		fmt.Fprintf(&text, "%s no locks\n", at)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
