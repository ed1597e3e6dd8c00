package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const folder = "../../../docs/pictures"

// perCharacter is the width in pixels of a character of 12 px, on average.
const perCharacter = 6.3

// The committed files are the current output of the command, and a page shows each of them.
func TestPicturesAreCurrent(t *testing.T) {
	pages := ""
	for _, page := range []string{"../../../README.md", "../../../docs/concepts.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		pages += string(text)
	}
	for _, p := range pictures() {
		drawn, err := os.ReadFile(filepath.Join(folder, p.name+".svg"))
		require.NoError(t, err)
		require.Equal(t, p.draw(), string(drawn), "run: go run ./examples/cmd/pictures docs/pictures")
		require.Contains(t, pages, "pictures/"+p.name+".svg)")
	}
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, len(pictures()))
}

func TestPicturesAreWellFormed(t *testing.T) {
	for _, p := range pictures() {
		for decoder := xml.NewDecoder(strings.NewReader(p.draw())); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, p.name)
		}
	}
}

// A text longer than its bar would overlap its neighbours.
func TestTextsFitIntoTheirBars(t *testing.T) {
	for _, p := range pictures() {
		for _, s := range p.bars {
			require.LessOrEqual(t, float64(utf8.RuneCountInString(s.text))*perCharacter, x(s.to)-x(s.from)+1, "%s: %s", p.name, s.text)
		}
	}
}
