package zkutil

import (
	"errors"

	"github.com/go-zookeeper/zk"
)

// deniedError is a zk.ErrNoAuth that names the znode whose ACL refuses. zk.Conn's text is "not
// authenticated", which misleads: the server accepts any digest, and later finds no ACL that names it.
type deniedError struct {
	what string // is not permitted
	path string // of the znode whose ACL decides
}

// Denied returns err, and for zk.ErrNoAuth an error that says what was refused.
func Denied(err error, what, path string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	return &deniedError{what, path}
}

func (e *deniedError) Error() string {
	return "no permission to " + e.what + " " + e.path + " (wrong credentials, or none that its ACL names)"
}

func (*deniedError) Unwrap() error { return zk.ErrNoAuth }

// ParentOf is the path of the znode whose ACL decides about the deletion of path.
func ParentOf(path string) string {
	parent, _ := Split(path)
	return parent
}
