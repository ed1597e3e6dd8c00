package recipe

import (
	"errors"
	"path"
	"runtime"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// ZeroValue returns the error of a method of a zero value, such as "mutex: acquire: zero value; use mutex.New". A zero value does not
// know its recipe, so the name is that of the calling package.
func ZeroValue(op string) *recipes.OpError {
	pkg := callingPackage()
	return &recipes.OpError{Op: pkg + ": " + op, Err: zkutil.Invalid(errors.New("zero value; use " + pkg + ".New"))}
}

// callingPackage returns the name of the innermost package on the stack that is not this one.
func callingPackage() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	own, _ := frames.Next()
	for {
		frame, more := frames.Next()
		if pkg := packageOf(frame.Function); pkg != packageOf(own.Function) || !more {
			return pkg
		}
	}
}

// packageOf returns the name of the package of a function, such as "mutex" for "github.com/…/mutex.(*InterProcessMutex).Acquire".
func packageOf(function string) string {
	pkg, _, _ := strings.Cut(path.Base(function), ".")
	return pkg
}
