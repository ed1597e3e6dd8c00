package zkutil

import (
	"errors"

	"github.com/go-zookeeper/zk"
)

// deniedError is a zk.ErrNoAuth that says where a permission is missing: zk.Conn's text is
// "not authenticated", although the server accepts each digest and only then finds that no
// ACL names it.
type deniedError struct {
	what string // is not permitted
	path string // of the znode whose ACL decides
}

// denied names what was refused if err is zk.ErrNoAuth.
func denied(err error, what, path string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	return &deniedError{what, path}
}

func (e *deniedError) Error() string {
	return "no permission to " + e.what + " " + e.path + " (wrong credentials, or none that its ACL names)"
}

func (*deniedError) Unwrap() error { return zk.ErrNoAuth }

// parentOf is the path of the znode whose ACL decides about the deletion of path.
func parentOf(path string) string {
	parent, _ := split(path)
	return parent
}
