package znodes

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// ReadAndWatch reads a znode, and returns a watch effective from that read on. The caller has to release the watch.
func ReadAndWatch(ctx context.Context, s *session.Session, path string) (session.Node, *session.Watch, error) {
	var w *session.Watch
	n, err := session.Repeat(ctx, s, func() (n session.Node, err error) {
		n, w, err = s.ReadAndWatch(ctx, path)
		return n, err
	})
	return n, w, err
}

// Read reads a znode without a watch.
func Read(ctx context.Context, s *session.Session, path string) (session.Node, error) {
	return session.Repeat(ctx, s, func() (session.Node, error) { return read(ctx, s, path) })
}

func read(ctx context.Context, s *session.Session, path string) (session.Node, error) {
	a, err := s.Request(ctx, wire.Request{Op: proto.OpGetData, Path: path})
	return session.Node{Data: a.Data, Stat: a.Stat}, err
}

// Write sets the data of a persistent znode. It creates the znode, and the parents that are missing.
func Write(ctx context.Context, s *session.Session, path string, data []byte) error {
	_, err := session.Repeat(ctx, s, func() (struct{}, error) {
		for {
			err := s.Write(ctx, path, data)
			if !errors.Is(err, zk.ErrNoNode) {
				return struct{}{}, err
			}
			if isNew, err := create(ctx, s, path, data); isNew || err != nil {
				return struct{}{}, err
			}
		}
	})
	return err
}

// Create creates a persistent znode, and the parents that are missing. A znode that exists is left as it is.
func Create(ctx context.Context, s *session.Session, path string, data []byte) error {
	_, err := session.Repeat(ctx, s, func() (bool, error) { return create(ctx, s, path, data) })
	return err
}

func create(ctx context.Context, s *session.Session, path string, data []byte) (isNew bool, err error) {
	for {
		_, err := s.Request(ctx, wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.Config().ACL, Flags: zk.FlagPersistent})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return false, nil
		case !errors.Is(err, zk.ErrNoNode):
			return err == nil, err
		}
		if err := s.MakeDir(ctx, zkutil.ParentOf(path)); err != nil {
			return false, err
		}
	}
}

// WriteIf sets the data of a znode of the given version. No other znode may ever have the path. zk.ErrBadVersion may be the answer to the
// write's own repetition.
func WriteIf(ctx context.Context, s *session.Session, path string, data []byte, version int32) error {
	_, err := session.Repeat(ctx, s, func() (wire.Answer, error) {
		return s.Request(ctx, wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: version})
	})
	return err
}

// Guarded is a write to a znode, or its deletion. It takes effect only while the znode of a hold exists, and only on one
// version of the data. The server checks both in the transaction that writes.
type Guarded struct {
	Guard   string // path of the hold's znode
	Path    string
	Data    []byte
	Deletes bool // the znode is deleted
	Version int32
}

// WriteGuarded writes, and repeats the write after a lost answer. The error is ErrNodeDeleted if the guard does not exist,
// and zk.ErrBadVersion if the data has another version.
//
// After an error isUncertain reports whether the write may have taken effect, or may still take effect, because its request was
// sent and the outcome is unknown. An uncertain write that is answered with zk.ErrBadVersion may be the reason of its own
// refusal: read the znode to find out. It can't take effect later, because its version is over.
func WriteGuarded(ctx context.Context, s *session.Session, w Guarded) (isUncertain bool, err error) {
	isGuardGone := false
	_, err = session.Repeat(ctx, s, func() (struct{}, error) {
		a, err := s.Request(ctx, wire.Request{Op: proto.OpMulti, Checks: []string{w.Guard}, Path: w.Path, Data: w.Data, Deletes: w.Deletes, Version: w.Version})
		isGuardGone = errors.Is(err, zk.ErrNoNode) && a.Refused == 0
		isUncertain = isUncertain || zkutil.IsUnanswered(err)
		return struct{}{}, err
	})
	if isGuardGone {
		err = zkutil.ErrNodeDeleted
	}
	return isUncertain && err != nil, err
}

// Undo is what UndoLater needs to undo a write.
type Undo struct {
	Write  Guarded
	Czxid  int64                  // of the znode for which the write was made; 0 if none was found
	Before []byte                 // the data that the write replaces
	IsOwn  func(data []byte) bool // reports whether data is that of the write
	// OnRefused is called when the server refuses the undo, for each series of equal refusals.
	OnRefused func(err error)
	// OnOver is called once: with nil when the write is undone, and with an error when the session ended before.
	OnOver func(err error)
}

// UndoLater undoes an uncertain write in the background: it writes the data from before, unless another client wrote
// meanwhile.
//
// The uncertain write may still be under way. So UndoLater changes the version that the write was made for in any case: then the
// write is refused if it arrives later. UndoLater repeats its steps until that is certain, or the session is closed.
func UndoLater(ctx context.Context, s *session.Session, u Undo) {
	isBegun := s.CleanUp(ctx, func(ctx context.Context) {
		refusal := ""
		_, err := zkutil.RepeatWhile(ctx, s.Config().Retry.Patient().AfterRefusals(),
			func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil },
			func() (struct{}, error) {
				err := undo(session.Finishing(ctx), s, u)
				if zkutil.IsRefused(err) && !errors.Is(err, zk.ErrBadVersion) && err.Error() != refusal {
					refusal = err.Error()
					u.OnRefused(err)
				}
				return struct{}{}, err
			})
		u.OnOver(err)
	})
	if !isBegun {
		u.OnOver(zkutil.ErrClosed)
	}
}

// undo makes one attempt, on one connection. It fails with zk.ErrBadVersion if the znode changed after it was read, and with ErrStale if the
// connection was lost in between, because the znode may be deleted and created again by then, and have the version once more.
func undo(ctx context.Context, s *session.Session, u Undo) error {
	now := s.Snapshot()
	n, err := read(ctx, s, u.Write.Path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	isSame := u.Czxid == 0 || n.Stat.Czxid == u.Czxid // a znode that was created again has the version once more
	isPending := isSame && n.Stat.Version == u.Write.Version
	if !isPending && !u.IsOwn(n.Data) {
		return nil
	}
	_, err = s.RequestOn(ctx, now.Epoch, wire.Request{Op: proto.OpSetData, Path: u.Write.Path, Data: u.Before, Version: n.Stat.Version})
	return err
}
