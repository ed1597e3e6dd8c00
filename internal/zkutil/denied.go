package zkutil

import (
	"errors"

	"github.com/go-zookeeper/zk"
)

// deniedError is a zk.ErrNoAuth that names the znode whose ACL refuses. zk.Conn's text is "not authenticated",
// which misleads: the server accepts any digest, and later finds no ACL with the digest.
type deniedError struct {
	what string // is not permitted
	path string // of the znode whose ACL decides
}

// Denied returns Explained(err), or for zk.ErrNoAuth an error that names the refused operation and the znode.
func Denied(err error, what, path string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return Explained(err)
	}
	return &deniedError{what, path}
}

func (e *deniedError) Error() string {
	return "no permission to " + e.what + " " + Printable(e.path) + " (wrong credentials, or none that its ACL names)"
}

func (*deniedError) Unwrap() error { return zk.ErrNoAuth }

// ParentOf returns the path of the znode whose ACL decides about the deletion of path.
func ParentOf(path string) string {
	parent, _ := Split(path)
	return parent
}
