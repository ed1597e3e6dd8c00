package screen

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// IsTerminal reports whether a file is a console.
func IsTerminal(file *os.File) bool {
	_, err := modesOf(file)
	return err == nil
}

func modesOf(file *os.File) (modes uint32, err error) {
	err = windows.GetConsoleMode(windows.Handle(file.Fd()), &modes)
	return modes, err
}

// Size returns the columns and rows of a console's window, or those of a VT100.
func Size(file *os.File) (width, height int) {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(file.Fd()), &info) != nil {
		return 80, 24
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1
}

// obeysEscapes asks a console to process escape sequences, and reports whether it does.
func obeysEscapes(console *os.File) bool {
	modes, err := modesOf(console)
	return err == nil && windows.SetConsoleMode(windows.Handle(console.Fd()), modes|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// Modes are those of a console before KeyByKey.
type Modes struct {
	in, out             *os.File
	inBefore, outBefore uint32
}

// ModesOf returns the modes of a console.
func ModesOf(in, out *os.File) (Modes, error) {
	inBefore, err := modesOf(in)
	if err != nil {
		return Modes{}, fmt.Errorf("console: %w", err)
	}
	outBefore, err := modesOf(out)
	if err != nil {
		return Modes{}, fmt.Errorf("console: %w", err)
	}
	return Modes{in, out, inBefore, outBefore}, nil
}

// KeyByKey makes the console pass each key at once and not show it, and take escape sequences. Ctrl-C remains a signal.
func (m Modes) KeyByKey() {
	_ = windows.SetConsoleMode(windows.Handle(m.in.Fd()), m.inBefore&^(windows.ENABLE_LINE_INPUT|windows.ENABLE_ECHO_INPUT)) // else a key needs the enter key
	_ = obeysEscapes(m.out)
}

// Restore sets the modes that the console had before.
func (m Modes) Restore() {
	_ = windows.SetConsoleMode(windows.Handle(m.in.Fd()), m.inBefore) // a closed console needs no modes
	_ = windows.SetConsoleMode(windows.Handle(m.out.Fd()), m.outBefore)
}
