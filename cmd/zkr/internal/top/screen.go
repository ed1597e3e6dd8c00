package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What a terminal does when it gets these.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTopLeft   = "\x1b[H"
	restOfLine  = "\x1b[K" // is cleared
	restBelow   = "\x1b[J"
)

// Screen shows the locks on a terminal until ctx ends, whose cause it then returns, or until q is typed.
func Screen(ctx context.Context, in, out *os.File, cfg Config) error {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	if _, err := io.WriteString(out, enterScreen); err != nil {
		return err
	}
	defer func() {
		_ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, before)
		_, _ = io.WriteString(out, leaveScreen)
	}()
	quit := make(chan struct{})
	go awaitQuit(in, quit) // ends with q, or with the process
	for {
		takeKeys(in, *before) // each time: a shell has set other modes if this process was stopped meanwhile
		f := read(ctx, cfg)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.draw(out, cfg.Root); err != nil {
			return err
		}
		select {
		case <-time.After(cfg.Every):
		case <-quit:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeKeys makes the terminal pass each key at once, and not show it. Ctrl-C remains a signal.
func takeKeys(in *os.File, modes unix.Termios) {
	modes.Lflag &^= unix.ICANON | unix.ECHO
	_ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &modes) // else q needs the enter key
}

func awaitQuit(in io.Reader, quit chan<- struct{}) {
	var key [1]byte
	for {
		if _, err := in.Read(key[:]); err != nil {
			return
		}
		if key[0] == 'q' {
			close(quit)
			return
		}
	}
}

// draw draws a frame in one write.
func (f frame) draw(out *os.File, root string) error {
	width, height := 80, 24
	if size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	var text strings.Builder
	text.WriteString(toTopLeft)
	for i, line := range f.lines(root) {
		if i == height-1 {
			break
		}
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		text.WriteString(line + restOfLine + "\r\n")
	}
	_, err := io.WriteString(out, text.String()+restBelow)
	return err
}

func (f frame) lines(root string) []string {
	lines := []string{
		fmt.Sprintf("%s  %d locks below %s, q ends", f.at.Format(time.TimeOnly), len(f.rows), root),
		fmt.Sprintf("%7s %10s %10s  %-9s %-30s %s", "WAITING", "LONGEST", "HELD", "KIND", "HOLDER", "PATH"),
	}
	for _, r := range f.rows {
		lines = append(lines, fmt.Sprintf("%7d %10s %10s  %-9s %-30s %s", r.waiters, r.wait(), r.since(f.at), r.kind, r.holder(), r.path))
	}
	if f.err != nil {
		lines = append(lines, strings.ReplaceAll(f.err.Error(), "\n", " "))
	}
	return lines
}
