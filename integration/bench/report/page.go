package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UpdatePage replaces the tables of a page by those of this run, and draws the page's charts from its tables. Two lines with
// its name enclose each table and chart:
//
//	<!-- bench pair -->
//	<!-- end pair -->
//	<!-- bench chart handoff -->
//	<!-- end chart handoff -->
//
// Tables of cases that this run did not measure stay. Cases and charts without a place on the page are left out.
func (r *Report) UpdatePage(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	page := string(text)
	for _, s := range r.sections {
		page, err = replaceBlock(page, s.Case.Name, s.Page(), err)
	}
	if err == nil {
		page, err = drawCharts(page, strings.TrimSuffix(file, ".md"))
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// drawCharts writes the charts that the page has a place and figures for into dir, and returns the page with links to them.
func drawCharts(page, dir string) (string, error) {
	for _, c := range charts {
		if _, _, found, err := find(page, "chart "+c.file); err != nil {
			return page, err
		} else if !found {
			continue
		}
		svg, found, err := c.draw(page)
		if err != nil {
			return page, err
		}
		if !found {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return page, err
		}
		if err := os.WriteFile(filepath.Join(dir, c.file+".svg"), []byte(svg), 0o644); err != nil {
			return page, err
		}
		link := fmt.Sprintf("![%s](%s/%s.svg)\n", c.title, filepath.Base(dir), c.file)
		if page, err = replaceBlock(page, "chart "+c.file, link, nil); err != nil {
			return page, err
		}
	}
	return page, nil
}

// find returns the range of the text between the two lines of a name, and whether the page has these lines.
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

// replaceBlock replaces the text between the two lines of a name, if the page has these lines. After an earlier error it does
// nothing.
func replaceBlock(page, name, text string, earlier error) (string, error) {
	from, to, found, err := find(page, name)
	if !found || earlier != nil {
		return page, cmp.Or(earlier, err)
	}
	return page[:from] + text + page[to:], nil
}
