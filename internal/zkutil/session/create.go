package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Created is a new znode of this session.
type Created[T any] struct {
	Path  string
	Token int64  // its czxid; 0: not known, as the owner
	Owner int64  // its session
	Epoch uint64 // of the connection on which it was created

	List T // the children of its directory, as they were after its creation; zero if they are not known

	IsAlone bool   // at its creation nobody of its queue was ahead: see alone.go
	Before  *Watch // on its directory, from before the create was sent; nil: there was none
}

// CreateAndList creates an ephemeral-sequential znode dir/_c_<uuid>-<prefix>, and the parents that are
// missing, and lists dir with ListChildren. Mostly that takes one round trip. A list that has failed is no
// error. Where this session was alone for a while there is no list. When the create fails it leaves nothing behind:
//
//   - After a lost answer it searches for the uuid, as Curator's protected create does. The znode that
//     it finds may belong to a session that has expired: the caller checks the owner.
//   - A create that ctx has abandoned is undone once its outcome is known.
//   - Parents that were made for a child which the server then refuses are removed, because the server
//     never reaps a container that has had no child.
//
// The znode takes BytesOf(dir, prefix) from the place.
func CreateAndList[T any](ctx context.Context, s *Session, place *Place, dir, prefix string, data []byte, parse func(children []string) T) (Created[T], error) {
	var created Created[T]
	a, err := s.createProtected(ctx, place, dir, prefix, data, func(ctx context.Context, c *call) (wire.Answer, error) {
		created = Created[T]{}
		var isLikely bool
		if created.Before, isLikely = s.mayBeAlone(dir, prefix); isLikely {
			a, err := s.run(ctx, c)
			created.Epoch, created.IsAlone = c.ticket.epoch, err == nil && s.isAlone(dir, prefix, a.Path, created.Before)
			return a, err
		}
		p := &pendingList[T]{s: s, key: listKey{dir, prefix}, parse: parse}
		if err := p.beginBehind(ctx, c); err != nil {
			return wire.Answer{}, err
		}
		list, listErr := p.wait(ctx) // first, because it comes behind the other answer: so the goroutine is woken once
		a, err := c.wait(ctx)
		created.Epoch = c.ticket.epoch
		if err == nil && listErr == nil {
			created.List = list
		}
		return a, err
	})
	created.Path, created.Token, created.Owner = a.Path, a.Stat.Czxid, a.Stat.EphemeralOwner
	return created, err
}

// createProtected creates the znode of CreateAndList. send sends each attempt.
func (s *Session) createProtected(ctx context.Context, place *Place, dir, prefix string, data []byte, send sendFunc) (wire.Answer, error) {
	charge, err := place.begin(BytesOf(dir, prefix))
	if err != nil {
		return wire.Answer{}, err
	}
	uuid := newUUID()
	var latest *call
	isUncertain := false      // a create may have been executed
	var made, extras []string // parents; other znodes of this create
	created, err := Repeat(ctx, s, func() (wire.Answer, error) {
		if isUncertain {
			found, err := s.searchProtected(ctx, dir, uuid, false)
			if err != nil {
				return wire.Answer{}, err
			}
			isUncertain = false
			if len(found) > 0 {
				extras = found[1:]
				return wire.Answer{Path: found[0]}, nil
			}
		}
		created, err := s.createIn(ctx, dir, &made, send, func() *call {
			latest = s.createCall(dir, prefix, uuid, data, charge)
			latest.place = place
			return latest
		})
		// The undo of an abandoned call removes its znode. The error tells which call was abandoned,
		// not ctx, which may have ended just after the connection.
		isUncertain = zkutil.IsUnanswered(err) && !zkutil.IsAny(err, context.Canceled, context.DeadlineExceeded, zkutil.ErrClosed)
		return created, err
	})
	if err != nil && zkutil.IsRefused(err) {
		s.removeMadeParents(ctx, made)
	}
	switch {
	case err == nil:
		s.settleCreated(charge, created)
		for _, extra := range extras {
			s.RemoveTwin(ctx, created.Path, extra)
		}
	case isUncertain:
		s.cleanUp(ctx, func(ctx context.Context) { s.removeAllProtected(ctx, dir, uuid, charge) })
	case latest == nil || !latest.isAbandoned: // otherwise its undo ends the charge
		charge.end()
	}
	return created, err
}

// sendFunc sends a call and waits for its answer.
type sendFunc func(ctx context.Context, c *call) (wire.Answer, error)

// createCall creates a protected ephemeral-sequential znode. If its caller abandons it, it is undone, and the
// charge ends with that.
func (s *Session) createCall(dir, prefix, uuid string, data []byte, charge *charge) *call {
	return &call{
		Request: wire.Request{
			Op: proto.OpCreate2, Path: strings.TrimSuffix(dir, "/") + "/" + Protection + uuid + "-" + prefix,
			Data: data, ACL: s.cfg.ACL, Flags: zk.FlagEphemeralSequential,
		},
		what: "create children of", where: dir,
		undo: func(ctx context.Context, a wire.Answer) {
			switch {
			case a.Err == nil:
				s.settleCreated(charge, a)
				s.removeAndWait(ctx, a.Path)
			case zkutil.IsUnanswered(a.Err):
				s.removeAllProtected(ctx, dir, uuid, charge)
			default:
				charge.end()
			}
		},
	}
}

// createIn creates a child of dir, and dir if it is missing. That is repeated until the child exists,
// because the server may reap a container at any time while it is empty. The parents that it has made are
// added to made. Servers before 3.5 have no create2.
func (s *Session) createIn(ctx context.Context, dir string, made *[]string, send sendFunc, create func() *call) (wire.Answer, error) {
	hasCreate2 := true
	for {
		c := create()
		if !hasCreate2 {
			c.Op = proto.OpCreate
		}
		a, err := send(ctx, c)
		switch {
		case hasCreate2 && zkutil.IsUnimplemented(err):
			hasCreate2 = false
		case !errors.Is(err, zk.ErrNoNode):
			return a, err
		default:
			if err := s.makeContainer(ctx, dir, made); err != nil {
				return wire.Answer{}, err
			}
		}
	}
}

// removeMadeParents removes the znodes that makeContainer has made, the outermost last, unless
// somebody has put a child or data there. It tries once, because an empty znode does no harm.
func (s *Session) removeMadeParents(ctx context.Context, made []string) {
	for _, dir := range slices.Backward(made) {
		if _, err := s.run(ctx, deleteCall(dir, 0)); err != nil {
			return
		}
	}
}

// makeContainer creates dir, and the ancestors that are missing. It tries the deepest one first,
// because the ACL of an ancestor that exists may forbid a create. On servers that have no
// containers (before 3.5) it creates persistent znodes, as Curator does. The znodes that it has made
// are added to made, the outermost first.
func (s *Session) makeContainer(ctx context.Context, dir string, made *[]string) error {
	create := func(op, flag int32) error {
		_, err := s.run(ctx, &call{
			Request: wire.Request{Op: op, Path: dir, Data: []byte{}, ACL: s.cfg.ACL, Flags: flag},
			what:    "create children of", where: zkutil.ParentOf(dir),
		})
		return err
	}
	for {
		err := create(proto.OpCreateContainer, zk.FlagContainer)
		if zkutil.IsUnimplemented(err) {
			err = create(proto.OpCreate, zk.FlagPersistent)
		}
		switch parent, _ := zkutil.Split(dir); {
		case err == nil:
			*made = append(*made, dir)
			return nil
		case errors.Is(err, zk.ErrNodeExists): // somebody else has made it, even if we had made it before
			*made = slices.DeleteFunc(*made, func(path string) bool { return path == dir })
			return nil
		case errors.Is(err, zk.ErrNoNode) && parent != dir:
			if err := s.makeContainer(ctx, parent, made); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// searchProtected returns the paths of the children of dir whose names have uuid. A sync comes first,
// because after a reconnect the server may be behind the one that has executed the create. The list goes
// with it: if it waited for the answer, it would queue behind heartbeats while the quorum is slow.
func (s *Session) searchProtected(ctx context.Context, dir, uuid string, isCleanUp bool) ([]string, error) {
	synced, list := &call{Request: wire.Request{Op: proto.OpSync, Path: dir}, isCleanUp: isCleanUp}, listCall(dir)
	list.isCleanUp = isCleanUp
	if err := s.send(ctx, synced, list); err != nil {
		return nil, err
	}
	if _, err := synced.wait(ctx); err != nil {
		return nil, err
	}
	a, err := list.wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	var found []string
	for _, child := range a.Children {
		if strings.HasPrefix(child, Protection+uuid+"-") {
			found = append(found, zkutil.Join(dir, child))
		}
	}
	return found, err
}

// removeAllProtected removes every child of dir whose name has uuid, until the session is closed. Then it
// ends the charge of their create. If it may not search for them, the charge ends with the session.
func (s *Session) removeAllProtected(ctx context.Context, dir, uuid string, charge *charge) {
	found, err := zkutil.RepeatWhile(ctx, s.cfg.Retry.Patient(), zkutil.IsTransient, func() ([]string, error) {
		return s.searchProtected(ctx, dir, uuid, true)
	})
	if err != nil {
		charge.settle(zkutil.Join(dir, Protection+uuid))
		if ctx.Err() == nil {
			s.Log(slog.LevelWarn, "search for an abandoned znode failed", "path", dir, "err", err)
		}
		return
	}
	for _, path := range found {
		s.removeAndWait(ctx, path)
	}
	charge.end()
}
