//go:build linux

package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var record = flag.Bool("record", false, "write docs/recording/lock.cast and lock.txt, from which make picture draws lock.svg")

const recording = "../../docs/recording/"

// TestPictureShowsTheCommands requires that the commands of the picture in the README print its text.
func TestPictureShowsTheCommands(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	w.env = append(w.env, "ZKR_SERVERS="+address, "PATH="+w.dir+":"+os.Getenv("PATH"))
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = dev ] && exec %s dev --listen %s\nexec %s \"$@\"\n", binary, address, binary)
	require.NoError(t, os.WriteFile(w.file("zkr"), []byte(script), 0o700)) //nolint:gosec // a script
	one, two := newPane(w), newPane(w)
	film := startFilm(one, two)

	one.enters("zkr dev > /dev/null &")
	one.sees("\n$ ")
	w.eventually(func() bool { return w.run("ls", "/").code == 0 }, "a server")
	one.enters("zkr lock --session-timeout 4s --id one /locks/report -- sleep 60 &")
	one.sees("\n$ ")
	w.eventually(func() bool { return strings.Contains(w.run("ls", "/locks/report").stdout, "one") }, "a holder")
	two.enters("zkr lock --id two /locks/report -- echo two works")
	two.sees("for 2s)")
	one.enters("kill -9 %2; wait %2")
	one.sees("Killed")
	two.sees("two works")
	one.sees("\n$ ")
	two.sees("\n$ ")

	text := one.text() + two.text()
	if cast := film.cut(t); *record {
		require.NoError(t, os.WriteFile(recording+"lock.cast", cast, 0o600))
		require.NoError(t, os.WriteFile(recording+"lock.txt", []byte(text), 0o600))
	}
	golden, err := os.ReadFile(recording + "lock.txt")
	require.NoError(t, err)
	require.Equal(t, string(golden), text)
}

// TestPictureHasTheText requires that the picture shows each line that TestPictureShowsTheCommands compares with what the commands print.
func TestPictureHasTheText(t *testing.T) {
	golden, err := os.ReadFile(recording + "lock.txt")
	require.NoError(t, err)
	picture, err := os.ReadFile(recording + "lock.svg")
	require.NoError(t, err)
	var shown strings.Builder
	for _, text := range svgText.FindAllStringSubmatch(string(picture), -1) {
		shown.WriteString(html.UnescapeString(text[1]) + "\n")
	}
	lines := strings.Split(normal(shown.String()), "\n")
	for line := range strings.Lines(string(golden)) {
		require.Contains(t, lines, strings.TrimSuffix(line, "\n"))
	}
}

var (
	svgText = regexp.MustCompile(`(?s)<text[^>]*>(.*?)</text>`)
	job     = regexp.MustCompile(`(?m)^(\[\d\]) \d+$`)
	seconds = regexp.MustCompile(`for \d+s`)
)

// normal is the text of a terminal without what differs between two runs.
func normal(screen string) string {
	text := strings.NewReplacer("\r\n", "\n", "\r\x1b[K", "\n", "\x1b[K", "").Replace(screen)
	text = seconds.ReplaceAllString(job.ReplaceAllString(text, "$1 PID"), "for Ns")
	lines := slices.Compact(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }))
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// pane is a part of the picture: a terminal with a shell.
type pane struct{ *shell }

func newPane(w *world) *pane {
	w.Helper()
	s := &shell{terminal: newTerminal(w)}
	s.run = w.startWith(func(c *exec.Cmd) {
		s.attach(c)
		c.Path, c.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
		c.Env = append(c.Env, "PS1=$ ", "TERM=dumb")
	})
	s.sees("$ ")
	return &pane{s}
}

// enters types a line, like a person if the session is recorded.
func (p *pane) enters(line string) {
	p.Helper()
	for _, key := range line + "\n" {
		if *record {
			<-time.After(30 * time.Millisecond)
		}
		p.types(string(key))
	}
	p.sees(line)
}

func (p *pane) text() string { return normal(p.screen.String()) }

// film records panes, one above the other, in version 2 of the format of asciinema.
type film struct {
	panes []*pane
	done  chan struct{}
	file  chan []byte
}

const (
	columns = 96
	rows    = 8 // of the upper pane
	height  = 12
)

func startFilm(panes ...*pane) *film {
	f := &film{panes, make(chan struct{}), make(chan []byte, 1)}
	go f.roll() // until cut
	return f
}

// cut ends the recording, and returns it.
func (f *film) cut(t *testing.T) []byte {
	t.Helper()
	if *record {
		<-time.After(2 * time.Second)
	}
	close(f.done)
	return <-f.file
}

func (f *film) roll() {
	var file bytes.Buffer
	write := func(values ...any) { _ = json.NewEncoder(&file).Encode(values) }
	_ = json.NewEncoder(&file).Encode(map[string]int{"version": 2, "width": columns, "height": height})
	write(0, "o", fmt.Sprintf("\x1b[%d;1H%s", rows, strings.Repeat("─", columns)))
	start, ticker := time.Now(), time.NewTicker(20*time.Millisecond)
	defer ticker.Stop()
	shown := make([]int, len(f.panes))
	for isOver := false; !isOver; {
		for i, p := range f.panes {
			if screen := p.screen.String(); len(screen) > shown[i] {
				write(time.Since(start).Seconds(), "o", place(screen, shown[i], i*rows))
				shown[i] = len(screen)
			}
		}
		select {
		case <-f.done:
			isOver = true
		case <-ticker.C:
		}
	}
	write(time.Since(start).Seconds(), "o", "")
	f.file <- file.Bytes()
}

// place returns what a screen shows after the first bytes, with the cursor in a pane that begins at a row.
func place(screen string, first, top int) string {
	row, column, isControl := top+1, 1, false
	var b strings.Builder
	move := func() { fmt.Fprintf(&b, "\x1b[%d;%dH", row, column) }
	for i, char := range screen {
		if i == first {
			move()
		}
		switch {
		case char == '\r':
			column = 1
		case char == '\n':
			row++
		case char == '\x1b' || isControl: // only \x1b[K, which does not move the cursor
			isControl = char != 'K'
		default:
			column++
		}
		if i < first {
			continue
		}
		if char == '\r' || char == '\n' {
			move()
		} else {
			b.WriteRune(char)
		}
	}
	return b.String()
}

// freeAddress is one that no server has.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
