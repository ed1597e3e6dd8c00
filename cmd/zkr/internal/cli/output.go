package cli

import (
	"os"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
)

// output is stdout. Its errors have their own exit code, because a full disk is not a server's fault.
type output struct{ file *os.File }

// File returns the underlying file, so that a terminal gets lines of its width.
func (o output) File() *os.File { return o.file }

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		err = &exit.Error{Code: exit.Machine, Err: err}
	}
	return n, err
}
