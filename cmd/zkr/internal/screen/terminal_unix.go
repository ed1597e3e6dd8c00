//go:build unix

package screen

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), getModes)
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

// obeysEscapes reports whether a terminal takes escape sequences.
func obeysEscapes(*os.File) bool { return true }

// Modes are those of a terminal before KeyByKey.
type Modes struct {
	in     *os.File
	before *unix.Termios
}

// ModesOf returns the modes of a terminal. On Unix, input and output share their modes.
func ModesOf(in, _ *os.File) (Modes, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), getModes)
	if err != nil {
		return Modes{}, fmt.Errorf("terminal: %w", err)
	}
	return Modes{in, before}, nil
}

// KeyByKey makes the terminal pass each key at once and not show it. Ctrl-C and Ctrl-Z remain signals.
func (m Modes) KeyByKey() {
	modes := *m.before
	modes.Lflag &^= unix.ICANON | unix.ECHO
	_ = unix.IoctlSetTermios(int(m.in.Fd()), setModes, &modes) // else a key needs the enter key
}

// Restore sets the modes that the terminal had before.
func (m Modes) Restore() { _ = unix.IoctlSetTermios(int(m.in.Fd()), setModes, m.before) }
