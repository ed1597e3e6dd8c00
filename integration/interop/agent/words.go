package agent

import (
	"net/url"
	"strings"
)

func escape(words []string) string {
	escaped := make([]string, len(words))
	for i, word := range words {
		escaped[i] = url.QueryEscape(word)
	}
	return strings.Join(escaped, " ")
}

// unescape is the opposite. An empty line may be one empty word or none.
func unescape(line string, some bool) ([]string, error) {
	if !some {
		return nil, nil
	}
	words := strings.Split(line, " ")
	for i, word := range words {
		var err error
		if words[i], err = url.QueryUnescape(word); err != nil {
			return nil, err
		}
	}
	return words, nil
}
