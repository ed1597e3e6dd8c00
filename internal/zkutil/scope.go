package zkutil

import (
	"bytes"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// Scope is the number of a session or a candidate. A scope shows whether a caller runs inside a user function run by
// the session or candidate, where Close would wait for itself.
//
// The number is written on the stack of the function, one digit per stack frame, and read from the program
// counters of the caller. Go has no other way to distinguish a function from goroutines started by the
// function, because goroutines inherit pprof labels and contexts, and no API returns the number of a goroutine.
type Scope uint32

var lastScope atomic.Uint32 //nolint:gochecknoglobals // a scope is unique in the process

// NewScope returns a unique scope.
func NewScope() Scope { return Scope(lastScope.Add(1)) }

// RunUserCode runs a function of the user inside some scopes.
func RunUserCode(fn func(), scopes ...Scope) {
	if len(scopes) == 0 {
		fn()
		return
	}
	beginScope(scopes[0], func() { RunUserCode(fn, scopes[1:]...) })
}

// The frames of a scope lie between beginScope and endScope, the lowest digit first.
//
//go:noinline
func beginScope(rest Scope, fn func()) { addDigit(rest, fn) }

//go:noinline
func endScope(fn func()) { fn() }

func addDigit(rest Scope, fn func()) {
	if rest == 0 {
		endScope(fn)
		return
	}
	switch rest % 4 {
	case 0:
		digit0(rest/4, fn)
	case 1:
		digit1(rest/4, fn)
	case 2:
		digit2(rest/4, fn)
	default:
		digit3(rest/4, fn)
	}
}

//go:noinline
func digit0(rest Scope, fn func()) { addDigit(rest, fn) }

//go:noinline
func digit1(rest Scope, fn func()) { addDigit(rest, fn) }

//go:noinline
func digit2(rest Scope, fn func()) { addDigit(rest, fn) }

//go:noinline
func digit3(rest Scope, fn func()) { addDigit(rest, fn) }

// IsOnStack reports whether the caller was called, in the same goroutine, by a user function inside the scope.
func (s Scope) IsOnStack() bool {
	begin, end := nameOf(beginScope), nameOf(endScope)
	digits := map[string]Scope{nameOf(digit0): 0, nameOf(digit1): 1, nameOf(digit2): 2, nameOf(digit3): 3}
	var read Scope
	return anyFrame(func(function string) bool { // the innermost first
		switch digit, isDigit := digits[function]; {
		case isDigit:
			read = read*4 + digit
		case function == end:
			read = 0
		case function == begin:
			return read == s
		}
		return false
	})
}

// StackForLogs returns debug.Stack without the frames of scopes, which mean nothing to a reader, and without arguments. The words
// of an argument may be those of an earlier call, and so a session id or another secret.
func StackForLogs() []byte {
	var kept []byte
	isOfScopes := func(file []byte) bool { return bytes.Contains(file, []byte("/internal/zkutil/scope.go:")) }
	lines := bytes.SplitAfter(debug.Stack(), []byte("\n"))
	for i, line := range lines { // a function, then its file behind a tab; long stacks have a line about the gap in between
		switch isFile := bytes.HasPrefix(line, []byte("\t")); {
		case isFile && isOfScopes(line), !isFile && i+1 < len(lines) && isOfScopes(lines[i+1]):
		case !isFile && bytes.HasSuffix(line, []byte(")\n")):
			kept = append(append(kept, line[:bytes.LastIndexByte(line, '(')]...), "()\n"...)
		default:
			kept = append(kept, line...)
		}
	}
	return kept
}

// nameOf returns the name of a function as in stack frames.
func nameOf(fn any) string { return runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name() }

// anyFrame reports whether match returns true for the function of any frame of the stack.
func anyFrame(match func(function string) bool) bool {
	pcs := make([]uintptr, 64)
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		for frames, more := runtime.CallersFrames(pcs[:n]), true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if match(frame.Function) {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
