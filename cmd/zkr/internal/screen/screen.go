// Package screen prints on terminals: in their width, with a little colour.
package screen

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Filer is a writer that may write to a terminal.
type Filer interface{ File() *os.File }

// IsTerminal reports whether a file is a terminal.
func IsTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// Size returns the columns and rows of a terminal, or those of a VT100.
func Size(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// Field returns text as one field of a line, in quotation marks where it would not be seen as one: other programs choose the ids and
// the names of znodes.
func Field(text string) string {
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' }
	if text == "" || text == "-" || !utf8.ValidString(text) || strings.ContainsFunc(text, isOdd) {
		return strconv.Quote(text)
	}
	return text
}

// Cut shortens a line to a width.
func Cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:max(0, width-1)]) + "…"
}

// HasColor reports whether a terminal gets colours: see no-color.org.
func HasColor() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// What a terminal does when it gets these.
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
	var text strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(table, "\n"), "\n") {
		if isCut {
			line = Cut(line, width)
		}
		if HasColor() {
			line = Paint(line, i == 0)
		}
		text.WriteString(line + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
