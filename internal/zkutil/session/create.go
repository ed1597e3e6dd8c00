package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/departures"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/ops"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Created is a new znode of this session.
type Created[T any] struct {
	Path  string
	Token int64  // czxid of the znode; 0: unknown, as is Owner
	Owner int64  // the znode's session
	Epoch uint64 // of the connection used for the create
	Birth Birth

	List T // the children of the directory after the create; zero if unknown
}

// Birth is the creation of a znode, by two clocks. It relates the clock of the servers to that of the session.
type Birth struct {
	Ctime         int64     // by the servers' clock, in milliseconds; 0: not known yet
	After, Before time.Time // bounds, by the clock of trust
}

// aclKey is the key of the ACL of WithACL.
type aclKey struct{}

// WithACL derives a context in which contenders and their parents get an ACL in place of the client's.
func WithACL(ctx context.Context, acl []zk.ACL) context.Context {
	return context.WithValue(ctx, aclKey{}, acl)
}

// aclOf returns the ACL of new znodes.
func (s *Session) aclOf(ctx context.Context) []zk.ACL {
	if acl, ok := ctx.Value(aclKey{}).([]zk.ACL); ok {
		return acl
	}
	return s.cfg.ACL
}

// Budget returns the budget that bounds the ephemeral znodes of the session.
func (s *Session) Budget() *budget.Budget { return s.budget }

// Reserve reserves bytes for contenders in dir. While dir has contenders of this session, Reserve may have to wait, until ctx
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
//     znode found may belong to an expired session. The caller checks the owner.
//   - A create abandoned by ctx is undone once the outcome is known.
//   - Parents made for a child refused by the server are removed, because the server never reaps a
//     container that has had no child.
//
// The znode takes BytesOf(dir, prefix) from the reservation.
func CreateAndList[T any](ctx context.Context, s *Session, reservation *budget.Reservation, dir, prefix string, data []byte, parse func(children []string) T) (Created[T], error) {
	var created Created[T]
	birth := Birth{After: s.clock.Now()}
	a, err := createProtected(ctx, s, reservation, dir, prefix, data, func(ctx context.Context, c *call) (wire.Answer, error) {
		created = Created[T]{}
		p := &pendingList[T]{s: s, key: listKey{dir, prefix}, parse: parse}
		if err := beginAllBehind(ctx, s, c, p); err != nil {
			return wire.Answer{}, err
		}
		list, listErr := p.wait(ctx) // first, because the list follows the other answer, so the goroutine is woken once
		a, err := c.wait(ctx)
		created.Epoch = c.flight.ticket.epoch
		if err == nil && listErr == nil {
			created.List = list
		}
		return a, err
	})
	created.Path, created.Token, created.Owner = a.Path, a.Stat.Czxid, a.Stat.EphemeralOwner
	birth.Before, birth.Ctime = s.clock.Now(), a.Stat.Ctime
	created.Birth = birth
	return created, err
}

// createProtected creates the znode of CreateAndList. send sends each attempt.
func createProtected(ctx context.Context, s *Session, reservation *budget.Reservation, dir, prefix string, data []byte, send sendFunc) (wire.Answer, error) {
	charge, err := reservation.Begin(BytesOf(dir, prefix))
	if err != nil {
		return wire.Answer{}, err
	}
	p := newProtected(s, dir, s.aclOf(ctx), charge)
	parents := &parents{s: s}
	var latest *call
	isUncertain := false // a create may have taken effect
	isUnseen := false    // a search did not find the znode of an unanswered create
	var extras []string  // other znodes of this create
	created, err := Repeat(ctx, s, func() (wire.Answer, error) {
		if isUncertain {
			found, err := p.find(ctx, latest)
			if err != nil {
				return wire.Answer{}, err
			}
			isUncertain = false
			if len(found) > 0 {
				extras = found[1:]
				return wire.Answer{Path: found[0]}, nil
			}
			isUnseen = true
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
		p.bindCharge(created)
		for _, twin := range extras {
			s.RemoveTwin(ctx, created.Path, twin)
		}
	case isUncertain:
		p.departure.Begin()
		s.CleanUp(ctx, p.removeAll)
	case latest != nil && latest.isAbandoned: // the call's undo ends the charge
		p.departure.Begin()
	default:
		charge.End()
	}
	if isUnseen {
		p.expectLateTwins(created.Path)
	}
	return created, err
}

// protected is the create of one znode, identified by uuid after a lost answer.
type protected struct {
	s         *Session
	dir, uuid string
	acl       []zk.ACL
	charge    *budget.Charge
	departure departures.Departure // begins when the caller abandons the znode
}

func newProtected(s *Session, dir string, acl []zk.ACL, charge *budget.Charge) *protected {
	p := &protected{s: s, dir: dir, acl: acl, uuid: zkutil.NewUUID(), charge: charge}
	p.departure = departures.Departure{Set: s.departing, Name: p.name()}
	return p
}

func (p *protected) name() string { return zkutil.Protection + p.uuid + "-" }

// call returns a create of the ephemeral sequential znode. If the caller abandons the call, the call is undone,
// which also ends the charge.
func (p *protected) call(prefix string, data []byte) *call {
	return &call{
		Request: wire.Request{
			Op: proto.OpCreate2, Path: strings.TrimSuffix(p.dir, "/") + "/" + p.name() + prefix,
			Data: data, ACL: p.acl, Flags: zk.FlagEphemeralSequential,
		},
		undo: p.undo,
	}
}

func (p *protected) undo(ctx context.Context, a wire.Answer) {
	defer p.departure.End()
	switch {
	case a.Err == nil:
		p.bindCharge(a)
		p.s.RemoveInTask(ctx, a.Path)
	case zkutil.IsUnanswered(a.Err):
		p.removeAll(ctx)
	default:
		p.charge.End()
	}
}

// bindCharge assigns the charge to the created znode.
func (p *protected) bindCharge(created wire.Answer) {
	p.s.mu.Lock() // so that the session does not end in between
	defer p.s.mu.Unlock()
	if owner := created.Stat.EphemeralOwner; owner != 0 && owner != p.s.core.ID {
		p.charge.End()
		return
	}
	p.charge.Bind(created.Path)
}

// find is search after a create without an answer, from which it learns what the server knows.
func (p *protected) find(ctx context.Context, create *call) (found []string, err error) {
	found, err = p.search(ctx)
	if len(found) > 0 && create.Op == proto.OpCreate2 {
		p.s.gate.optional.NoteKnown(proto.OpCreate2, create.flight.ticket.server)
	}
	return found, err
}

// search returns the paths of the children of dir whose names have uuid.
func (p *protected) search(ctx context.Context) (found []string, err error) {
	children, err := p.s.listSynced(ctx, p.dir)
	for _, child := range children {
		if strings.HasPrefix(child, p.name()) {
			found = append(found, zkutil.Join(p.dir, child))
		}
	}
	return found, err
}

// listSynced returns the children of dir, none if dir is missing, for a search for znodes of this session. A sync precedes the list, because
// after a reconnect the server may be behind the server that executed the create. The list is sent right behind the sync: if sent after the
// answer, the list would queue behind heartbeats while the quorum is slow.
func (s *Session) listSynced(ctx context.Context, dir string) ([]string, error) {
	synced, list := &call{Request: wire.Request{Op: proto.OpSync, Path: dir}}, listCall(dir)
	synced.isCleanUp = isFinishing(ctx)
	list.isCleanUp = synced.isCleanUp
	if err := s.gate.send(ctx, synced, list); err != nil {
		return nil, err
	}
	if _, err := synced.wait(ctx); err != nil && !errors.Is(err, zk.ErrNoNode) { // a refused sync says nothing about the create
		return nil, err
	}
	a, err := list.wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return a.Children, err
}

// expectLateTwins looks once for other znodes of the create that made the znode at path, a session timeout from now. It follows each search
// for the znode of an unanswered create, because the server may execute the create after the search. By the time of the second look, that server
// has either executed the create or lost the session to another. path is empty if the create failed.
func (p *protected) expectLateTwins(path string) {
	p.s.afterTimeout(func(ctx context.Context) { p.removeLateTwins(ctx, path) })
}

// removeLateTwins is the second look of expectLateTwins.
func (p *protected) removeLateTwins(ctx context.Context, path string) {
	s := p.s
	found, err := Repeat(ctx, s, func() ([]string, error) {
		return ListChildren(ctx, s, p.dir, "late twins", func(children []string) []string { return children })
	})
	if err != nil {
		return // the session is closed, or the directory may not be listed or is deleted
	}
	for _, child := range found {
		twin := zkutil.Join(p.dir, child)
		if strings.HasPrefix(child, p.name()) && twin != path {
			if path != "" {
				s.log.Log(slog.LevelWarn, "one create made two znodes; deleting the other", "znode", twin)
			}
			s.RemoveTwin(ctx, path, twin)
		}
	}
}

// removeAll removes every child of dir whose name has uuid, and ends the charge of their create. The attempts
// are repeated until the server confirms the removal, the znodes' session expires, or the session is
// closed.
func (p *protected) removeAll(ctx context.Context) {
	defer p.departure.End()
	s := p.s
	s.mu.Lock()
	owner := s.core.ID
	s.mu.Unlock()
	found, err := RepeatCleanUp(ctx, s, owner, func(err error) {
		s.log.Log(refusalLevel(err), "search for an abandoned znode failed; retrying", "path", p.dir, "err", err)
	}, p.search)
	if err != nil {
		return // the session is closed
	}
	p.expectLateTwins("")
	for _, path := range found {
		s.RemoveInTask(ctx, path)
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
	hasHolds := s.core.Standing > 0
	s.mu.Unlock()
	if !s.cfg.SuspendEnds || hasHolds {
		return nil
	}
	if state := s.gate.optional.Of(proto.OpCreateContainer); state.IsKnown || state.IsLacking {
		return nil
	}
	if err := p.make(ctx, dir); !ops.IsAnswered(err) {
		return err
	}
	return nil
}

// remove removes the znodes made by make, the outermost last, except for those to which another client added a child or data. remove
// tries once, because an empty znode does no harm.
func (p *parents) remove(ctx context.Context) {
	for _, dir := range slices.Backward(p.made) {
		if _, err := p.s.gate.run(ctx, deleteCall(dir, 0)); err != nil && !zkutil.IsRefused(err) {
			return
		}
	}
}

// note records the outcome of a create of dir.
func (p *parents) note(dir string, isMade bool) {
	// If p made dir before, another client deleted it since, and perhaps replaced it.
	if p.made = slices.DeleteFunc(p.made, func(path string) bool { return path == dir }); isMade {
		p.made = append(p.made, dir)
	}
}

// MakeDir creates dir, and any missing ancestors below the chroot, as containers.
func (s *Session) MakeDir(ctx context.Context, dir string) error {
	return (&parents{s: s}).make(ctx, dir)
}

// containerCall returns a create of dir as a container.
func (s *Session) containerCall(ctx context.Context, dir string) *call {
	return &call{
		Request: wire.Request{Op: proto.OpCreateContainer, Path: dir, Data: []byte{}, ACL: s.aclOf(ctx), Flags: zk.FlagContainer},
	}
}

// makeAll is make for several directories. The first shows what the servers support, and has ancestors that the others may share. The
// others are created together, in two round trips or more for each level of missing ancestors.
func (p *parents) makeAll(ctx context.Context, dirs []string) error {
	if err := p.make(ctx, dirs[0]); err != nil || len(dirs) == 1 {
		return err
	}
	var calls []*call
	for _, dir := range dirs[1:] {
		calls = append(calls, p.s.containerCall(ctx, dir))
	}
	if err := p.s.gate.send(ctx, calls...); err != nil {
		return err
	}
	var rest, ancestors []string
	var failure error // the first
	for _, c := range calls {
		switch _, err := c.wait(ctx); {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			p.note(c.Path, err == nil)
		case errors.Is(err, zk.ErrNoNode):
			rest, ancestors = append(rest, c.Path), append(ancestors, zkutil.ParentOf(c.Path))
		case failure == nil:
			failure = err
		}
	}
	if failure != nil || len(rest) == 0 {
		return failure
	}
	if err := p.makeAll(ctx, slices.Compact(ancestors)); err != nil {
		return err
	}
	return p.makeAll(ctx, rest)
}

// make creates dir, and any missing ancestors below the chroot. make tries the deepest first, because the ACL
// of an existing ancestor may forbid a create. On servers without containers (before 3.5) make creates persistent znodes, as
// Curator does.
func (p *parents) make(ctx context.Context, dir string) error {
	s := p.s
	create := func() *call { return s.containerCall(ctx, dir) }
	send := func(c *call) (wire.Answer, error) { return s.gate.run(ctx, c) }
	if strings.HasPrefix(s.cfg.Chroot+"/", dir+"/") {
		return fmt.Errorf("chroot %s: %w; unlike a namespace, a chroot is never created", s.cfg.Chroot, zk.ErrNoNode)
	}
	for {
		_, err := s.gate.askOptional(proto.OpCreateContainer, create, send)
		switch parent, _ := zkutil.Split(dir); {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			p.note(dir, err == nil)
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

// Write sets the data of a znode of any version.
func (s *Session) Write(ctx context.Context, path string, data []byte) error {
	_, err := s.Request(ctx, wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: anyVersion})
	return err
}

// Attempt is what is known of a request besides its error.
type Attempt struct {
	IsSent      bool
	IsAbandoned bool // by the caller
}

// CreateEphemeral asks a server once to create the ephemeral znode at path. If the caller abandons the request, undo runs in a task
// of the session once the outcome is known.
func (s *Session) CreateEphemeral(ctx context.Context, path string, data []byte, undo func(ctx context.Context)) (Attempt, error) {
	c := &call{
		Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagEphemeral},
		undo:    func(ctx context.Context, _ wire.Answer) { undo(ctx) },
	}
	_, err := s.gate.run(ctx, c)
	return Attempt{c.flight.s != nil, c.isAbandoned}, err
}
