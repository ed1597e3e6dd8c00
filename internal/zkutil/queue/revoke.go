package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Revoke asks the contender at path to give up the lease. A missing znode is no error.
func Revoke(ctx context.Context, s *session.Session, path string) error {
	if _, name := zkutil.Split(path); name == "" || !IsContender(name) {
		return zkutil.Invalid(fmt.Errorf("%w %q: not the znode of a contender", zkutil.ErrInvalidPath, path))
	}
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	_, err := session.Repeat(ctx, s, func() (struct{}, error) {
		return struct{}{}, s.Write(ctx, path, []byte(session.Revocation))
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
