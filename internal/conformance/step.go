package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Step is one line of a script: one action of one session.
type Step struct {
	Session string // "a"
	Op      string // "create"
	Args    []Arg  // in their order
	Parts   []Step // of a multi, a multiRead, a pipeline and a cut; parts name no session
}

// Arg is one word of a step: "/path" (no key), "watch" (no value) or "data=hello".
type Arg struct{ Key, Value string }

// ParseStep reads a step from its text:
//
//	a create /x data=hello ephemeral
//	b getData "/odd \x00 path" watch
//	a multi create /y data=d; check /x v=3; delete /z
//
// Arguments for a whole multi come first: "a multi truncate=9 create /y". A path or a value
// with spaces, semicolons or unprintable characters is a quoted Go string.
func ParseStep(text string) (Step, error) {
	words, err := split(text)
	if err != nil {
		return Step{}, fmt.Errorf("step %q: %w", text, err)
	}
	if len(words) < 2 {
		return Step{}, fmt.Errorf("step %q: no session or no operation", text)
	}
	s := Step{Session: words[0].Key, Op: words[1].Key}
	words = words[2:]
	if !slices.Contains([]string{"multi", "multiRead", "pipeline", "cut"}, s.Op) {
		s.Args = words
		return s, nil
	}
	for len(words) > 0 && words[0].Value != "" {
		s.Args, words = append(s.Args, words[0]), words[1:]
	}
	for len(words) > 0 {
		end := 0
		for end < len(words) && words[end].Key != separator {
			end++
		}
		if end > 0 {
			s.Parts = append(s.Parts, Step{Op: words[0].Key, Args: words[1:end]})
		}
		words = words[min(end+1, len(words)):]
	}
	return s, nil
}

// separator is the word between the parts of a step.
const separator = ";"

// split splits a step into its words.
func split(text string) ([]Arg, error) {
	var words []Arg
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" {
			return words, nil
		}
		if text[0] == ';' {
			words, text = append(words, Arg{Key: separator}), text[1:]
			continue
		}
		var word Arg
		if !isPath(text) {
			end := strings.IndexAny(text, "= ;")
			if end < 0 {
				end = len(text)
			}
			if end == 0 {
				return nil, fmt.Errorf("a value without a key: %q", text)
			}
			word.Key, text = text[:end], text[end:]
			if !strings.HasPrefix(text, "=") {
				words = append(words, word)
				continue
			}
			text = text[1:]
		}
		var err error
		if word.Value, text, err = value(text); err != nil {
			return nil, err
		}
		words = append(words, word)
	}
}

// isPath reports whether a word is a path rather than a key.
func isPath(word string) bool { return word != "" && strings.Contains(`/$"`, word[:1]) }

// value reads up to the next space or semicolon, or a quoted string.
func value(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, " ;")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", err
	}
	value, err = strconv.Unquote(quoted)
	return value, text[len(quoted):], err
}

// String returns the step's text.
func (s Step) String() string {
	words := []string{s.Op}
	if s.Session != "" {
		words = []string{s.Session, s.Op}
	}
	for _, arg := range s.Args {
		words = append(words, arg.String())
	}
	for i, part := range s.Parts {
		if i > 0 {
			words[len(words)-1] += separator
		}
		words = append(words, part.String())
	}
	return strings.Join(words, " ")
}

// String returns the word's text.
func (a Arg) String() string {
	value := printable(a.Value)
	if a.Key == "" && !isPath(value) {
		value = strconv.Quote(value)
	}
	switch {
	case a.Key == "":
		return value
	case a.Value == "":
		return a.Key
	}
	return a.Key + "=" + value
}

// printable returns the text in ASCII and without spaces, quoted if necessary.
func printable(text string) string {
	quoted := strconv.QuoteToASCII(text)
	if quoted == `"`+text+`"` && !strings.ContainsAny(text, " ;") {
		return text
	}
	return quoted
}

// path returns the step's first word without a key.
func (s Step) path() string { return s.get("") }

// get returns the value of the first word with the key.
func (s Step) get(key string) string {
	for _, arg := range s.Args {
		if arg.Key == key {
			return arg.Value
		}
	}
	return ""
}

// has reports whether a word has the key.
func (s Step) has(key string) bool {
	for _, arg := range s.Args {
		if arg.Key == key {
			return true
		}
	}
	return false
}

// all returns the values of the words with the key.
func (s Step) all(key string) []string {
	values := []string{}
	for _, arg := range s.Args {
		if arg.Key == key {
			values = append(values, arg.Value)
		}
	}
	return values
}

// number returns the value of a word, or the default if the word is missing.
func (s Step) number(key string, without int64) (int64, error) {
	if !s.has(key) {
		return without, nil
	}
	return strconv.ParseInt(s.get(key), 0, 64)
}
