package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// ReadPersistent reads a znode that no session owns, and returns a watch that stands from that read on.
func (s *Session) ReadPersistent(ctx context.Context, path string) ([]byte, *Watch, error) {
	var w *Watch
	n, err := Repeat(ctx, s, func() (n Node, err error) {
		n, w, err = s.readAndWatch(ctx, path)
		return n, err
	})
	return n.Data, w, err
}

// WritePersistent sets the data of a znode that no session owns. It creates the znode, and the parents
// that are missing.
func (s *Session) WritePersistent(ctx context.Context, path string, data []byte) error {
	_, err := Repeat(ctx, s, func() (struct{}, error) {
		for {
			err := s.Write(ctx, path, data)
			if !errors.Is(err, zk.ErrNoNode) {
				return struct{}{}, err
			}
			if isNew, err := s.createPersistent(ctx, path, data); isNew || err != nil {
				return struct{}{}, err
			}
		}
	})
	return err
}

// CreatePersistent creates a znode that no session owns, and the parents that are missing. A znode that
// exists is left as it is.
func (s *Session) CreatePersistent(ctx context.Context, path string, data []byte) error {
	_, err := Repeat(ctx, s, func() (bool, error) { return s.createPersistent(ctx, path, data) })
	return err
}

func (s *Session) createPersistent(ctx context.Context, path string, data []byte) (isNew bool, err error) {
	for {
		_, err := s.run(ctx, &call{
			Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagPersistent},
			what:    "create children of", where: zkutil.ParentOf(path),
		})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return false, nil
		case !errors.Is(err, zk.ErrNoNode):
			return err == nil, err
		}
		var made []string
		if err := s.makeContainer(ctx, zkutil.ParentOf(path), &made); err != nil {
			return false, err
		}
	}
}
