package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Persistent reads and writes znodes that no session owns, so that the contents outlive all sessions.
type Persistent struct{ s *Session }

// Read reads a znode that no session owns, and returns a watch that stands from that read on. The caller has to
// release it.
func (p Persistent) Read(ctx context.Context, path string) ([]byte, *Watch, error) {
	s := p.s
	var w *Watch
	n, err := Repeat(ctx, s, func() (n Node, err error) {
		n, w, err = s.watches.readAndWatch(ctx, path)
		return n, err
	})
	return n.Data, w, err
}

// Write sets the data of a znode that no session owns. It creates the znode, and the parents
// that are missing.
func (p Persistent) Write(ctx context.Context, path string, data []byte) error {
	s := p.s
	_, err := Repeat(ctx, s, func() (struct{}, error) {
		for {
			err := s.Write(ctx, path, data)
			if !errors.Is(err, zk.ErrNoNode) {
				return struct{}{}, err
			}
			if isNew, err := p.create(ctx, path, data); isNew || err != nil {
				return struct{}{}, err
			}
		}
	})
	return err
}

// Create creates a znode that no session owns, and the parents that are missing. A znode that
// exists is left as it is.
func (p Persistent) Create(ctx context.Context, path string, data []byte) error {
	s := p.s
	_, err := Repeat(ctx, s, func() (bool, error) { return p.create(ctx, path, data) })
	return err
}

func (p Persistent) create(ctx context.Context, path string, data []byte) (isNew bool, err error) {
	s := p.s
	for {
		_, err := s.gate.run(ctx, &call{
			Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagPersistent},
			what:    "create children of", where: zkutil.ParentOf(path),
		})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return false, nil
		case !errors.Is(err, zk.ErrNoNode):
			return err == nil, err
		}
		if err := (&parents{s: s}).make(ctx, zkutil.ParentOf(path)); err != nil {
			return false, err
		}
	}
}

// Guarded is a write to a znode that no session owns. It takes effect only while the znode of a hold exists, and
// only on one version of the data: the server checks both in the transaction that writes.
type Guarded struct {
	Guard   string // path of the hold's znode
	Path    string
	Data    []byte
	Version int32
}

// WriteGuarded writes, and repeats the write after a lost answer. The error is ErrNodeDeleted if the guard is gone,
// and zk.ErrBadVersion if the data has another version.
//
// After an error isUncertain reports whether the write may have taken effect, or may still do so: its request was sent,
// and nobody knows the outcome. An uncertain write that is answered with zk.ErrBadVersion may be the reason of its own refusal:
// read the znode to find out. It can't take effect later, because its version is over.
func (p Persistent) WriteGuarded(ctx context.Context, w Guarded) (isUncertain bool, err error) {
	s := p.s
	isGuardGone := false
	_, err = Repeat(ctx, s, func() (struct{}, error) {
		a, err := s.gate.run(ctx, &call{
			Request: wire.Request{Op: proto.OpMulti, Checks: []string{w.Guard}, Path: w.Path, Data: w.Data, Version: w.Version},
			what:    "write", where: w.Path,
		})
		isGuardGone = errors.Is(err, zk.ErrNoNode) && a.Refused == 0
		isUncertain = isUncertain || zkutil.IsUnanswered(err)
		return struct{}{}, err
	})
	if isGuardGone {
		err = zkutil.ErrNodeDeleted
	}
	return isUncertain && err != nil, err
}

// ReadOnce reads a znode that no session owns, without a watch.
func (p Persistent) ReadOnce(ctx context.Context, path string) (Node, error) {
	s := p.s
	return Repeat(ctx, s, func() (Node, error) { return s.gate.readNode(ctx, path) })
}

// WriteIf sets the data of a znode of the given version. zk.ErrBadVersion may be the answer to the write's own repetition.
func (p Persistent) WriteIf(ctx context.Context, path string, data []byte, version int32) error {
	s := p.s
	_, err := Repeat(ctx, s, func() (wire.Answer, error) {
		return s.gate.run(ctx, &call{
			Request: wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: version},
			what:    "write", where: path,
		})
	})
	return err
}

// Unsettled marks the begin of a write that the caller may have to undo. Close waits until settle is called, for an
// operation timeout at most.
func (p Persistent) Unsettled() (settle func()) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.unsettled++
	s.keeper.retainLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.life.unsettled--
		s.keeper.releaseLocked()
		s.link.announceLocked()
	}
}

// Undo is what UndoLater needs to undo a write.
type Undo struct {
	Write  Guarded
	Before []byte                 // the data that the write replaces
	IsOwn  func(data []byte) bool // reports whether data is that of the write
	// OnRefused is called when the server refuses the undo, for each series of equal refusals.
	OnRefused func(err error)
	// OnOver is called once: with nil when the write is undone, and with an error when the session has ended before.
	OnOver func(err error)
}

// UndoLater undoes an uncertain write in the background: it writes the data from before, unless somebody else has
// written meanwhile.
//
// The uncertain write may still be under way. So the version that it was made for has to go in any case: then the write is
// refused if it comes later. UndoLater repeats its steps until that is certain, or the session is closed.
func (p Persistent) UndoLater(ctx context.Context, u Undo) {
	s := p.s
	isBegun := s.cleanUp(ctx, func(ctx context.Context) {
		refusal := ""
		_, err := zkutil.RepeatWhile(ctx, s.cfg.Retry.Patient().AfterRefusals(),
			func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil },
			func() (struct{}, error) {
				err := p.undo(ctx, u)
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

// undo makes one attempt. It fails with zk.ErrBadVersion if the znode has changed since it was read.
func (p Persistent) undo(ctx context.Context, u Undo) error {
	s := p.s
	read := readCall(u.Write.Path)
	read.isCleanUp = true
	n, err := s.gate.run(ctx, read)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	isPending := n.Stat.Version == u.Write.Version
	if !isPending && !u.IsOwn(n.Data) {
		return nil
	}
	_, err = s.gate.run(ctx, &call{
		Request: wire.Request{Op: proto.OpSetData, Path: u.Write.Path, Data: u.Before, Version: n.Stat.Version},
		what:    "write", where: u.Write.Path, isCleanUp: true,
	})
	return err
}
