package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Revoke asks the contender at the first of paths that has a znode to give up the lease. Several paths are readings of one. It is no error
// if none has a znode.
func Revoke(ctx context.Context, s *session.Session, paths ...string) error {
	for _, path := range paths {
		if _, name := zkutil.Split(path); name == "" || !IsContender(name) {
			return zkutil.Invalid(fmt.Errorf("%w %q: not the znode of a contender", zkutil.ErrInvalidPath, path))
		}
	}
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	for _, path := range paths {
		_, err := session.Repeat(ctx, s, func() (struct{}, error) {
			return struct{}{}, s.Write(ctx, path, []byte(session.Revocation))
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}
