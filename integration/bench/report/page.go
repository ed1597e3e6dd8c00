package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UpdatePage replaces the tables and charts of a page by those of this run. Each stands between two lines with its name, that of a
// case or of a chart:
//
//	<!-- bench pair -->
//	<!-- end pair -->
//	<!-- bench chart pair -->
//	<!-- end chart pair -->
//
// What was not measured, and what the page does not have, leaves it as it is; so does a chart of several cases of which the page
// has a table that this run does not replace.
func (r *Report) UpdatePage(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	dir := strings.TrimSuffix(file, ".md")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	page := string(text)
	isShown := func(name string) bool {
		from, to, _, _ := find(page, name) // an error is that of replaceBlock, if the case was measured
		return from < to
	}
	drawn, err := r.drawCharts(dir, isShown)
	if err != nil {
		return err
	}
	for _, s := range r.sections {
		page, err = replaceBlock(page, s.Case.Name, s.Markdown(), err)
	}
	for _, c := range drawn {
		image := fmt.Sprintf("![%s](%s/%s.svg)\n", c.title, filepath.Base(dir), c.file)
		page, err = replaceBlock(page, "chart "+c.file, image, err)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// find returns from where to where the text between the two lines of a name goes, and whether the page has them.
func find(page, name string) (from, to int, found bool, err error) {
	begin, end := "<!-- bench "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(page, begin)
	if !found {
		return 0, 0, false, nil
	}
	text, _, found := strings.Cut(rest, end)
	if !found {
		return 0, 0, false, fmt.Errorf("no %s", end)
	}
	from = len(before) + len(begin)
	return from, from + len(text), true, nil
}

// replaceBlock replaces what stands between the two lines of a name, if the page has them. After an earlier error it does nothing.
func replaceBlock(page, name, text string, earlier error) (string, error) {
	from, to, found, err := find(page, name)
	if !found || earlier != nil {
		return page, cmp.Or(earlier, err)
	}
	return page[:from] + text + page[to:], nil
}
