// Package screen prints on terminals: in their width, with a little colour.
package screen

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Filer is a writer that may write to a terminal.
type Filer interface{ File() *os.File }

// Field returns text as one field of a line, quoted where necessary, because other programs choose the ids and the names of
// znodes.
func Field(text string) string {
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' }
	if text == "" || text == "-" || !utf8.ValidString(text) || strings.ContainsFunc(text, isOdd) {
		return strconv.Quote(text)
	}
	return text
}

// maxID is the number of characters of an ID that a sentence shows. A znode may have a megabyte of data.
const maxID = 200

// Quote returns an ID in quotation marks, without the characters beyond the first 200.
func Quote(id string) string {
	if runes := []rune(id); len(runes) > maxID {
		id = string(runes[:maxID]) + "…"
	}
	return strconv.Quote(id)
}

// Cut shortens a line to a number of columns. A character of East Asian scripts takes two.
func Cut(line string, width int) string { return runewidth.Truncate(line, width, "…") }

// HasColor reports whether a terminal gets colours, as no-color.org defines.
func HasColor(terminal *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && obeysEscapes(terminal)
}

// Escape sequences, named by their effect.
const (
	bold   = "\x1b[1m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// Paint makes headings and lines with a revocation stand out.
func Paint(line string, isHeading bool) string {
	switch {
	case isHeading:
		return bold + line + plain
	case strings.Contains(line, "revoked"):
		return yellow + line + plain
	default:
		return line
	}
}

// Print prints a table whose first line is a heading. On a terminal, lines are cut at its width if isCut is set.
func Print(out io.Writer, table string, isCut bool) error {
	filer, ok := out.(Filer)
	if !ok || !IsTerminal(filer.File()) {
		_, err := io.WriteString(out, table)
		return err
	}
	width, _ := Size(filer.File())
	hasColor := HasColor(filer.File())
	var text strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(table, "\n"), "\n") {
		if isCut {
			line = Cut(line, width)
		}
		if hasColor {
			line = Paint(line, i == 0)
		}
		text.WriteString(line + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
