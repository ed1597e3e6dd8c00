// Package exit has the codes with which zkr ends.
package exit

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Exit codes, besides the child's. Those from 64 are from sysexits.h; the last two are a shell's.
const (
	OK            = 0
	Nothing       = 1  // there is no such path, znode or holder
	Usage         = 64 // wrong arguments
	NotRun        = 65 // CMD did not run for this occurrence, and no record shows a run on any host
	Unavailable   = 69 // no server, wrong credentials, no permission
	Machine       = 71 // output can't be written, or no process started
	Lost          = 74 // the lock was lost while CMD ran
	Busy          = 75 // held by another, or not acquired within the time
	NotExecutable = 126
	NotFound      = 127
)

// Error is an error with the code of the process.
type Error struct {
	Code   int
	Err    error          // nil: nothing is printed
	Signal syscall.Signal // if not 0, the signal that ends the process
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Silent returns an Error about which nothing is printed.
func Silent(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code}
}

// BySignal returns a silent Error for an end by a signal, whose code is a shell's.
func BySignal(s syscall.Signal) error { return &Error{Code: 128 + int(s), Signal: s} }

// SignalOf returns the signal of an error made by BySignal, else 0.
func SignalOf(err error) syscall.Signal {
	if e, ok := zkutil.AsType[*Error](err); ok {
		return e.Signal
	}
	return 0
}

// IsSilent reports whether err was made by Silent or BySignal.
func IsSilent(err error) bool {
	e, ok := zkutil.AsType[*Error](err)
	return ok && e.Err == nil
}

// CodeOf returns the code for an error.
func CodeOf(err error) int {
	if e, ok := zkutil.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case err == nil:
		return OK
	case errors.Is(err, recipes.ErrInvalidArgument):
		return Usage
	default:
		return Unavailable
	}
}
