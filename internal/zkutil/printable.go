package zkutil

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text as it is shown in errors and logs. Text with a character that can't be printed is quoted, because other
// programs choose the names and the contents of znodes. A line break would forge a record of a log, and a mark for right-to-left text
// reorders what a terminal shows.
func Printable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
