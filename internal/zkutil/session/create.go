package session

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Created is a new znode of this session.
type Created[T any] struct {
	Path  string
	Token int64  // czxid of the znode; 0: unknown, as is Owner
	Owner int64  // the znode's session
	Epoch uint64 // of the connection used for the create

	List T // the children of the directory after the create; zero if unknown
}

// Budget returns the budget that bounds the ephemeral znodes of the session.
func (s *Session) Budget() *budget.Budget { return s.budget }

// Reserve takes a place in dir. While dir has contenders of this session, Reserve may have to wait, until ctx
// ends or the session closes. Otherwise, if not enough bytes are left, the error is ErrSessionFull.
func (s *Session) Reserve(ctx context.Context, dir string, bytes int) (*budget.Reservation, error) {
	r, err := s.budget.Request(dir, bytes)
	if err != nil || r.IsGiven() {
		return r, err
	}
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	if err := r.Await(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// BytesOf returns the budget cost of an ephemeral-sequential znode of this session: the length of the path, and
// four bytes for the length field.
func BytesOf(dir, prefix string) int {
	const uuidLength = 36
	return len(zkutil.Join(dir, zkutil.Protection)) + uuidLength + len("-") + len(prefix) + zkutil.NumberDigits + budget.LengthField
}

// CreateAndList creates an ephemeral-sequential znode dir/_c_<uuid>-<prefix>, and any missing parents, and
// lists dir like ListChildren. Mostly that takes one round trip. A failed list is not an error. A failed create
// leaves nothing behind:
//
//   - After a lost answer, CreateAndList searches for the uuid, as Curator's protected create does. The
//     znode found may belong to an expired session: the caller checks the owner.
//   - A create abandoned by ctx is undone once the outcome is known.
//   - Parents made for a child refused by the server are removed, because the server never reaps a
//     container that has had no child.
//
// The znode takes BytesOf(dir, prefix) from the reservation.
func CreateAndList[T any](ctx context.Context, s *Session, reservation *budget.Reservation, dir, prefix string, data []byte, parse func(children []string) T) (Created[T], error) {
	var created Created[T]
	a, err := createProtected(ctx, s, reservation, dir, prefix, data, func(ctx context.Context, c *call) (wire.Answer, error) {
		created = Created[T]{}
		p := &pendingList[T]{s: s, key: listKey{dir, prefix}, parse: parse}
		if err := p.beginBehind(ctx, c); err != nil {
			return wire.Answer{}, err
		}
		list, listErr := p.wait(ctx) // first, because the list comes behind the other answer: so the goroutine is woken once
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
func createProtected(ctx context.Context, s *Session, reservation *budget.Reservation, dir, prefix string, data []byte, send sendFunc) (wire.Answer, error) {
	charge, err := reservation.Begin(BytesOf(dir, prefix))
	if err != nil {
		return wire.Answer{}, err
	}
	p := &protected{s: s, dir: dir, uuid: zkutil.NewUUID(), charge: charge}
	parents := &parents{s: s}
	var latest *call
	isUncertain := false // a create may have been executed
	var extras []string  // other znodes of this create
	created, err := Repeat(ctx, s, func() (wire.Answer, error) {
		if isUncertain {
			found, err := p.search(ctx, false)
			if err != nil {
				return wire.Answer{}, err
			}
			isUncertain = false
			if len(found) > 0 {
				if latest.Op == proto.OpCreate2 {
					s.gate.optional.noteKnown(proto.OpCreate2, latest.ticket.server)
				}
				extras = found[1:]
				return wire.Answer{Path: found[0]}, nil
			}
		}
		created, err := parents.createIn(ctx, dir, send, func() *call {
			latest = p.call(prefix, data)
			latest.reservation = reservation
			return latest
		})
		// The undo of an abandoned call removes the znode. The error identifies an abandoned call; ctx does
		// not, because ctx may have ended just after the connection.
		isUncertain = zkutil.IsUnanswered(err) && !zkutil.IsAny(err, context.Canceled, context.DeadlineExceeded, zkutil.ErrClosed)
		return created, err
	})
	if err != nil && zkutil.IsRefused(err) {
		parents.remove(ctx)
	}
	switch {
	case err == nil:
		p.settle(created)
		for _, extra := range extras {
			s.RemoveTwin(ctx, created.Path, extra)
		}
	case isUncertain:
		s.cleanUp(ctx, p.removeAll)
	case latest == nil || !latest.isAbandoned: // otherwise the call's undo ends the charge
		charge.End()
	}
	return created, err
}

// protected is the create of one znode, identified by uuid after a lost answer.
type protected struct {
	s         *Session
	dir, uuid string
	charge    *budget.Charge
}

// call returns a create of the ephemeral sequential znode. If the caller abandons the call, the call is undone,
// which also ends the charge.
func (p *protected) call(prefix string, data []byte) *call {
	return &call{
		Request: wire.Request{
			Op: proto.OpCreate2, Path: strings.TrimSuffix(p.dir, "/") + "/" + zkutil.Protection + p.uuid + "-" + prefix,
			Data: data, ACL: p.s.cfg.ACL, Flags: zk.FlagEphemeralSequential,
		},
		what: "create children of", where: p.dir, undo: p.undo,
	}
}

func (p *protected) undo(ctx context.Context, a wire.Answer) {
	switch {
	case a.Err == nil:
		p.settle(a)
		removeAndWait(ctx, p.s, a.Path)
	case zkutil.IsUnanswered(a.Err):
		p.removeAll(ctx)
	default:
		p.charge.End()
	}
}

// settle assigns the charge to the created znode.
func (p *protected) settle(created wire.Answer) {
	p.s.mu.Lock() // so that the session does not end in between
	defer p.s.mu.Unlock()
	if owner := created.Stat.EphemeralOwner; owner != 0 && owner != p.s.link.id {
		p.charge.End()
		return
	}
	p.charge.Settle(created.Path)
}

// search returns the paths of the children of dir whose names have uuid. A sync comes first, because after a
// reconnect the server may be behind the server that has executed the create. The list is sent right behind the
// sync: if sent after the answer, the list would queue behind heartbeats while the quorum is slow.
func (p *protected) search(ctx context.Context, isCleanUp bool) ([]string, error) {
	synced, list := &call{Request: wire.Request{Op: proto.OpSync, Path: p.dir}, isCleanUp: isCleanUp}, listCall(p.dir)
	list.isCleanUp = isCleanUp
	if err := p.s.gate.send(ctx, synced, list); err != nil {
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
		if strings.HasPrefix(child, zkutil.Protection+p.uuid+"-") {
			found = append(found, zkutil.Join(p.dir, child))
		}
	}
	return found, err
}

// removeAll removes every child of dir whose name has uuid, and ends the charge of their create. The attempts
// are repeated until the server has confirmed the removal, the znodes' session has expired, or the session is
// closed.
func (p *protected) removeAll(ctx context.Context) {
	s := p.s
	s.mu.Lock()
	owner := s.link.latestIDLocked()
	s.mu.Unlock()
	var before error
	found, err := repeatCleanUp(ctx, s, owner, func(err error) {
		if ctx.Err() == nil && (before == nil || before.Error() != err.Error()) {
			s.Log(refusalLevel(err), "search for an abandoned znode failed, will be repeated", "path", p.dir, "err", err)
		}
		before = err
	}, func() ([]string, error) {
		return p.search(ctx, true)
	})
	if err != nil {
		return // the session is closed
	}
	for _, path := range found {
		removeAndWait(ctx, s, path)
	}
	p.charge.End()
}

// sendFunc sends a call and waits for the answer.
type sendFunc func(ctx context.Context, c *call) (wire.Answer, error)

// parents are the directories above znodes to be created, with a record of the directories made here.
type parents struct {
	s    *Session
	made []string // the outermost first
}

// createIn creates a child of dir, and dir if missing. createIn repeats both until the child exists, because
// the server may reap a container at any time while empty.
func (p *parents) createIn(ctx context.Context, dir string, send sendFunc, create func() *call) (wire.Answer, error) {
	if err := p.learnBeforeHolds(ctx, dir); err != nil {
		return wire.Answer{}, err
	}
	for {
		a, err := p.s.gate.askOptional(proto.OpCreate2, create, func(c *call) (wire.Answer, error) { return send(ctx, c) })
		if !errors.Is(err, zk.ErrNoNode) {
			return a, err
		}
		if err := p.make(ctx, dir); err != nil {
			return wire.Answer{}, err
		}
	}
}

// learnBeforeHolds finds out whether the servers know containers, if a server without containers would end the
// connection and with it all holds. learnBeforeHolds makes dir, or asks in vain because dir exists. A later
// attempt would cost the holds granted by then.
func (p *parents) learnBeforeHolds(ctx context.Context, dir string) error {
	s := p.s
	s.mu.Lock()
	hasHolds := len(s.holds.byPath) > 0
	s.mu.Unlock()
	if !s.cfg.SuspendEnds || hasHolds {
		return nil
	}
	if state := s.gate.optional.of(proto.OpCreateContainer); state.isKnown || state.isLacking {
		return nil
	}
	if err := p.make(ctx, dir); !isAnswered(err) {
		return err
	}
	return nil
}

// remove removes the znodes made by make, the outermost last, unless somebody has added a child or data. remove
// tries once, because an empty znode does no harm.
func (p *parents) remove(ctx context.Context) {
	for _, dir := range slices.Backward(p.made) {
		if _, err := p.s.gate.run(ctx, deleteCall(dir, 0)); err != nil {
			return
		}
	}
}

// make creates dir, and any missing ancestors. make tries the deepest first, because the ACL of an existing
// ancestor may forbid a create. On servers without containers (before 3.5) make creates persistent znodes, as
// Curator does.
func (p *parents) make(ctx context.Context, dir string) error {
	s := p.s
	create := func() *call {
		return &call{
			Request: wire.Request{Op: proto.OpCreateContainer, Path: dir, Data: []byte{}, ACL: s.cfg.ACL, Flags: zk.FlagContainer},
			what:    "create children of", where: zkutil.ParentOf(dir),
		}
	}
	send := func(c *call) (wire.Answer, error) { return s.gate.run(ctx, c) }
	for {
		_, err := s.gate.askOptional(proto.OpCreateContainer, create, send)
		switch parent, _ := zkutil.Split(dir); {
		case err == nil:
			p.made = append(p.made, dir)
			return nil
		case errors.Is(err, zk.ErrNodeExists): // somebody else has made dir, even if p had made it before
			p.made = slices.DeleteFunc(p.made, func(path string) bool { return path == dir })
			return nil
		case errors.Is(err, zk.ErrNoNode) && parent != dir:
			if err := p.make(ctx, parent); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// CreateProtectedAs creates the ephemeral znode dir/_c_<uuid>-<name>, to which the server appends no number,
// and returns the path. dir has to exist. A failed create leaves nothing behind:
//
//   - After a lost answer, ErrNodeExists means that the create was executed, because no other znode has the
//     uuid. The znode may belong to an expired session: the caller checks the owner.
//   - A create abandoned by ctx is undone once the outcome is known.
//
// The znode takes BytesOf(dir, …) from the reservation, with the number at the end of name in place of the
// server's.
func (s *Session) CreateProtectedAs(ctx context.Context, reservation *budget.Reservation, dir, name string, data []byte) (string, error) {
	path := zkutil.Join(dir, zkutil.Protection+zkutil.NewUUID()+"-"+name)
	charge, err := reservation.Begin(len(path) + budget.LengthField)
	if err != nil {
		return "", err
	}
	isUncertain := false                               // a create may have been executed
	undo := func(ctx context.Context, _ wire.Answer) { // an earlier attempt may have been executed
		removeAndWait(ctx, s, path)
		charge.End()
	}
	var latest *call
	_, err = Repeat(ctx, s, func() (string, error) {
		latest = &call{
			Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagEphemeral},
			what:    "create children of", where: dir, undo: undo,
		}
		a, err := s.gate.run(ctx, latest)
		if isUncertain && errors.Is(err, zk.ErrNodeExists) {
			return path, nil
		}
		isUncertain = isUncertain || zkutil.IsUnanswered(err)
		return a.Path, err
	})
	switch {
	case latest.isAbandoned: // its undo ends the charge
	case err != nil && !isUncertain:
		charge.End()
	default:
		charge.Settle(path)
		if err != nil {
			s.RemoveLater(ctx, path)
		}
	}
	return path, err
}

// Write sets the data of a znode of any version.
func (s *Session) Write(ctx context.Context, path string, data []byte) error {
	_, err := s.gate.run(ctx, &call{
		Request: wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: anyVersion},
		what:    "write", where: path,
	})
	return err
}

// CreateNamed creates the ephemeral znode at path, whose name has no uuid, and the parents that are missing. If the znode exists,
// CreateNamed leaves it as it is: the caller reads whose it is, also after a lost answer. An abandoned create is undone once its
// outcome is known. If the session has no bytes left, the error is ErrSessionFull.
func (s *Session) CreateNamed(ctx context.Context, path string, data []byte) error {
	dir, _ := zkutil.Split(path)
	bytes := len(path) + budget.LengthField
	s.budget.Free(path)                             // of a znode that is gone
	place, err := s.budget.ReserveAhead(dir, bytes) // a wait for bytes would be silent
	if err != nil {
		return err
	}
	defer place.End()
	charge, err := place.Begin(bytes)
	if err != nil {
		return err
	}
	mayExist := false
	parents := &parents{s: s}
	var latest *call
	_, err = Repeat(ctx, s, func() (wire.Answer, error) {
		for {
			latest = &call{
				Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagEphemeral},
				what:    "create children of", where: dir,
				undo: func(ctx context.Context, _ wire.Answer) {
					_ = removeNamed(ctx, s, path)
					charge.End()
				},
			}
			a, err := s.gate.run(ctx, latest)
			mayExist = mayExist || err == nil || zkutil.IsUnanswered(err) || errors.Is(err, zk.ErrNodeExists)
			if !errors.Is(err, zk.ErrNoNode) {
				return a, err
			}
			if err := parents.make(ctx, dir); err != nil {
				return wire.Answer{}, err
			}
		}
	})
	switch {
	case latest != nil && latest.isAbandoned: // its undo ends the charge
	case mayExist:
		charge.Settle(path)
	default:
		charge.End()
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// ReadOwnership reads and watches the ephemeral znode at path, and reports whether it belongs to this session. The caller has to release
// the watch.
func (s *Session) ReadOwnership(ctx context.Context, path string) (n Node, isOwn bool, w *Watch, err error) {
	n, err = Repeat(ctx, s, func() (n Node, err error) {
		n, w, err = s.watches.readAndWatch(ctx, path)
		return n, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return n, err == nil && n.isOf(s.link.latestIDLocked()), w, err
}

// isOf reports whether a session owns the znode. While a client has no session, its id is 0, as is the owner of a znode that is not ephemeral.
func (n Node) isOf(session int64) bool { return session != 0 && n.Stat.EphemeralOwner == session }

// removeNamed deletes the znode at path if it belongs to this session, and repeats that until it is certain or ctx ends. Its name has
// no uuid. So a znode of another session that comes between the read and the delete is deleted in its place: its owner creates
// it again.
func removeNamed(ctx context.Context, s *Session, path string) error {
	s.mu.Lock()
	owner := s.link.latestIDLocked()
	s.mu.Unlock()
	r := &removal{s: s, path: path, owner: owner}
	_, err := repeatCleanUp(ctx, s, owner, func(err error) { r.recordFailure(ctx, err) }, func() (struct{}, error) {
		read := readCall(path)
		read.isCleanUp = true
		a, err := s.gate.run(ctx, read)
		if err == nil && (Node{Stat: a.Stat}).isOf(owner) {
			c := deleteCall(path, anyVersion)
			c.isCleanUp = true
			_, err = s.gate.run(ctx, c)
		}
		if isGone(err) {
			err = nil
		}
		return struct{}{}, err
	})
	if err == nil {
		s.budget.Free(path)
	}
	return err
}

// RemoveNamed begins to delete the znode of CreateNamed, unless it belongs to another session. done is closed once it is gone.
func (s *Session) RemoveNamed(ctx context.Context, path string) (done <-chan struct{}) {
	gone := make(chan struct{})
	s.cleanUp(ctx, func(ctx context.Context) {
		if removeNamed(ctx, s, path) == nil {
			close(gone)
		}
	})
	return gone
}

// Persistent returns the access to znodes that no session owns.
func (s *Session) Persistent() Persistent { return Persistent{s} }
