package znodes

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A named znode is an ephemeral znode at a path that the caller has chosen. Other sessions may use the same path.

// CreateNamed creates the named znode at path, and the parents that are missing. An existing znode stays as it is, also after a lost
// answer, so that the caller has to read the owner. An abandoned create is undone once its outcome is known. If the session has no
// bytes left, the error is ErrSessionFull. mayExist is false if certainly no server created the znode.
func CreateNamed(ctx context.Context, s *session.Session, path string, data []byte) (mayExist bool, err error) {
	dir, bytes := zkutil.ParentOf(path), len(path)+budget.LengthField
	s.Budget().Free(path)                                   // of an earlier znode, which is deleted
	reservation, err := s.Budget().ReserveAhead(dir, bytes) // a wait for bytes would be silent
	if err != nil {
		return false, err
	}
	defer reservation.End()
	charge, err := reservation.Begin(bytes)
	if err != nil {
		return false, err
	}
	undo := func(ctx context.Context) {
		_ = removeNamed(ctx, s, path)
		charge.End()
	}
	var latest session.Attempt
	_, err = session.Repeat(ctx, s, func() (struct{}, error) {
		for {
			var err error
			latest, err = s.CreateEphemeral(ctx, path, data, undo)
			mayExist = mayExist || latest.IsSent && (err == nil || zkutil.IsUnanswered(err) || errors.Is(err, zk.ErrNodeExists))
			if !errors.Is(err, zk.ErrNoNode) {
				return struct{}{}, err
			}
			if err := s.MakeDir(ctx, dir); err != nil {
				return struct{}{}, err
			}
		}
	})
	switch {
	case latest.IsAbandoned: // its undo ends the charge
		mayExist = true
	case mayExist:
		charge.Bind(path)
	default:
		charge.End()
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return mayExist, nil
	}
	return mayExist, err
}

// ReadNamed reads and watches the named znode at path, and reports whether it belongs to this session. The caller has to release the
// watch.
func ReadNamed(ctx context.Context, s *session.Session, path string) (n session.Node, isOwn bool, w *session.Watch, err error) {
	n, w, err = ReadAndWatch(ctx, s, path)
	return n, err == nil && belongsTo(n, s.Snapshot().ID), w, err
}

// belongsTo reports whether a session owns the znode. A client without a session has the id 0, and a znode that is not ephemeral has
// the owner 0.
func belongsTo(n session.Node, id int64) bool { return id != 0 && n.Stat.EphemeralOwner == id }

// WriteNamed sets the data of the named znode at path. It writes nothing, and returns nil, if the znode is missing, belongs to another session, or
// is changed meanwhile. Each attempt reads the owner on the connection of the write, because the session may end, and a successor take its place, between two attempts.
func WriteNamed(ctx context.Context, s *session.Session, path string, data []byte) error {
	_, err := session.Repeat(ctx, s, func() (struct{}, error) {
		now := s.Snapshot()
		n, err := read(ctx, s, path)
		if err == nil && belongsTo(n, now.ID) {
			_, err = s.RequestOn(ctx, now.Epoch, wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: n.Stat.Version})
		}
		return struct{}{}, err
	})
	if zkutil.IsAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
		return nil
	}
	return err
}

// RemoveNamed begins to delete the znode of CreateNamed, unless it belongs to another session. done is closed once the znode is
// deleted.
func RemoveNamed(ctx context.Context, s *session.Session, path string) (done <-chan struct{}) {
	deleted := make(chan struct{})
	s.CleanUp(ctx, func(ctx context.Context) {
		if removeNamed(ctx, s, path) == nil {
			close(deleted)
		}
	})
	return deleted
}

// removeNamed deletes the znode at path if it belongs to this session, and repeats that until it is certain or ctx ends. The read and the delete
// use one connection. If another client deletes the znode between the two, and another session creates it, the delete hits the new znode, because
// its name has no uuid. Then its owner creates it again.
func removeNamed(ctx context.Context, s *session.Session, path string) error {
	owner := s.Snapshot().ID
	_, err := session.RepeatCleanUp(ctx, s, owner, func(err error) { s.LogDeleteFailure(path, err) }, func(ctx context.Context) (struct{}, error) {
		_, err := s.Request(ctx, wire.Request{Op: proto.OpSync, Path: path}) // the server may be behind the one that executed a create
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, err
		}
		now := s.Snapshot()
		n, err := read(ctx, s, path)
		if err == nil && belongsTo(n, owner) {
			_, err = s.RequestOn(ctx, now.Epoch, wire.Request{Op: proto.OpDelete, Path: path, Version: -1})
		}
		if errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, nil
		}
		return struct{}{}, err
	})
	if err == nil {
		s.Budget().Free(path)
	}
	return err
}
