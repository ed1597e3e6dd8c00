package dial

import (
	"fmt"
	"io"
	"syscall"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// IsHangUp reports whether a server has closed the connection without an answer.
func IsHangUp(err error) bool { return zkutil.IsAny(err, io.EOF, syscall.ECONNRESET, syscall.EPIPE) }

// ExplainHangUp adds the possible causes to err if the server has hung up without an answer.
func ExplainHangUp(err error) error {
	if !IsHangUp(err) {
		return err
	}
	return fmt.Errorf("%w (hung up without an answer: no quorum, a read-only server, more connections from this address than maxClientCnxns allows, "+
		"or TLS on one side only)", err)
}
