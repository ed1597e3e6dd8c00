package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
)

// Escape sequences, named by their effect.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTopLeft   = "\x1b[H"
	restOfLine  = "\x1b[K" // is cleared
	restBelow   = "\x1b[J"
)

// view is a terminal that shows frames.
type view struct {
	out   *os.File
	modes screen.Modes // before
}

// enter takes the screen, and makes the terminal pass each key at once and not show it. Ctrl-C and Ctrl-Z remain
// signals.
func (v view) enter() error {
	v.modes.KeyByKey()
	_, err := io.WriteString(v.out, enterScreen)
	return err
}

func (v view) leave() {
	_, _ = io.WriteString(v.out, leaveScreen)
	v.modes.Restore() // on Windows, a console takes no escape sequences afterwards
}

// Screen shows the locks on a terminal until ctx ends, whose cause it then returns, or until q is typed. Keys and
// signals work while the servers are silent, too.
func Screen(ctx context.Context, in, out *os.File, cfg Config) error {
	modes, err := screen.ModesOf(in, out)
	if err != nil {
		return err
	}
	v := view{out, modes}
	stops := make(chan os.Signal, 1)
	notifyStops(stops)
	defer signal.Stop(stops)
	if err := v.enter(); err != nil {
		return err
	}
	defer v.leave()
	quit := make(chan struct{})
	go awaitQuit(in, quit) // ends with q, or with the process
	reading, cancel := context.WithCancel(ctx)
	frames := make(chan frame)
	readerDone := make(chan struct{})
	go func() { // ends with the context; joined below
		defer close(readerDone)
		readFrames(reading, cfg, frames)
	}()
	defer func() {
		cancel()
		<-readerDone
	}()
	var latest frame
	silence := time.NewTimer(silentAfter)
	defer silence.Stop()
	for {
		select {
		case latest = <-frames:
			silence.Reset(cfg.Every + silentAfter)
			if err := latest.draw(out, cfg.Root); err != nil {
				return err
			}
		case <-silence.C:
			latest.errs = []error{fmt.Errorf("no answer for %v", silentAfter)}
			if err := latest.draw(out, cfg.Root); err != nil {
				return err
			}
		case <-stops:
			if err := v.stop(); err != nil {
				return err
			}
		case <-quit:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// silentAfter is how long a look may take before the view says that the servers are silent.
const silentAfter = 3 * time.Second

// readFrames sends a frame for each look.
func readFrames(ctx context.Context, cfg Config, frames chan<- frame) {
	for ctx.Err() == nil {
		f := read(ctx, cfg)
		select {
		case frames <- f:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(cfg.Every):
		case <-ctx.Done():
		}
	}
}

func awaitQuit(in io.Reader, quit chan<- struct{}) {
	var key [1]byte
	for {
		if _, err := in.Read(key[:]); err != nil {
			return
		}
		if key[0] == 'q' || key[0] == 'Q' {
			close(quit)
			return
		}
	}
}

// draw draws a frame in one write.
func (f frame) draw(out *os.File, root string) error {
	width, height := screen.Size(out)
	hasColor := screen.HasColor(out)
	var text strings.Builder
	text.WriteString(toTopLeft)
	for i, line := range f.lines(root) {
		if i == height-1 {
			break
		}
		line = screen.Cut(line, width)
		if hasColor {
			line = screen.Paint(line, i == 1)
		}
		text.WriteString(line + restOfLine + "\r\n")
	}
	_, err := io.WriteString(out, text.String()+restBelow)
	return err
}

func (f frame) lines(root string) []string {
	lines := []string{fmt.Sprintf("%s  %d locks below %s, q ends", f.at.Format(time.TimeOnly), len(f.rows), root)}
	lines = append(lines, strings.Split(strings.TrimSuffix(Table(f.rows), "\n"), "\n")...)
	for _, err := range f.errs {
		lines = append(lines, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return lines
}
