package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A transaction is bounded by maxTogether parts and by half of the longest frame that a server accepts by default. A server does nothing
// else while it executes the transaction: 1,000 creates take up to 25 ms.
const (
	maxTogether      = 1000
	maxTogetherBytes = 512 << 10
)

// errUnusable means that the answer to a transaction lacks the path of a znode, or the czxid.
var errUnusable = errors.New("the answer to a transaction lacks paths or the czxid")

// Planned is a contender's znode that CreateTogether creates.
type Planned[T any] struct {
	Dir, Prefix string
	Data        []byte
	Reservation *budget.Reservation
	Parse       func(children []string) T
}

// CanCreateTogether reports whether CreateTogether is worth a try. The client has to be connected, and the servers have to resume sessions.
// On other servers (ClickHouse Keeper) the transaction is untested.
func (s *Session) CanCreateTogether() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.IsConnected && !s.core.IsBound()
}

// CreateTogether is CreateAndList for several znodes, by one transaction, and tries once. If it fails, no znode is
// left, or each is being deleted in the background as after a CreateAndList that was given up. The caller may then use CreateAndList for each.
//
// A server before 3.9 answers with the paths of the created znodes alone. Their czxid is the zxid of the answer, and their owner is the
// session that sent the transaction. If a list contradicts this, token and owner are unknown.
func CreateTogether[T any](ctx context.Context, s *Session, plans []Planned[T]) ([]Created[T], error) {
	t := transaction[T]{s: s, plans: plans, acl: s.aclOf(ctx)}
	if err := t.begin(); err != nil {
		return nil, err
	}
	made := &parents{s: s}
	created, err := t.sendOrMake(ctx, made)
	return created, t.end(ctx, made, created, err)
}

// transaction is a CreateTogether or an Exchange.
type transaction[T any] struct {
	s           *Session
	plans       []Planned[T]
	acl         []zk.ACL
	given       *Hold // of an Exchange; nil: none
	znodes      []*protected
	latest      *call
	isUncertain bool // the transaction may have taken effect
}

// begin prepares the znodes. The caller has to call end.
func (t *transaction[T]) begin() error {
	if t.isTooLong() {
		return zk.ErrShortBuffer
	}
	for _, p := range t.plans {
		charge, err := p.Reservation.Begin(BytesOf(p.Dir, p.Prefix))
		if err != nil {
			t.endCharges()
			return err
		}
		t.znodes = append(t.znodes, newProtected(t.s, p.Dir, t.acl, charge))
	}
	return nil
}

// end settles what the outcome means for the znodes, and returns err.
func (t *transaction[T]) end(ctx context.Context, made *parents, created []Created[T], err error) error {
	switch isAbandoned := t.latest != nil && t.latest.isAbandoned; {
	case err == nil:
		for i, znode := range t.znodes {
			znode.bindCharge(wire.Answer{Path: created[i].Path, Stat: zk.Stat{EphemeralOwner: created[i].Owner}})
		}
	case isAbandoned: // the undo of the call ends the charges
		for _, znode := range t.znodes {
			znode.departure.Begin()
		}
	case t.isUncertain:
		t.removeAll(ctx)
	default:
		t.endCharges()
		if zkutil.IsRefused(err) {
			made.remove(ctx)
		}
	}
	return err
}

// isTooLong reports whether a server may refuse the length of the transaction.
func (t *transaction[T]) isTooLong() bool {
	size := 0
	for _, p := range t.plans {
		size += t.sizeOf(p)
	}
	return len(t.plans) > maxTogether || size > maxTogetherBytes && len(t.plans) > 1
}

func (t *transaction[T]) sizeOf(p Planned[T]) int {
	size := BytesOf(p.Dir, p.Prefix) + len(p.Data)
	for _, entry := range t.acl {
		size += len(entry.Scheme) + len(entry.ID) + 12
	}
	return size
}

func (t *transaction[T]) endCharges() {
	for _, znode := range t.znodes {
		znode.charge.End()
	}
}

// sendOrMake is send, which makes missing directories and then sends again, until there are none, as createIn does.
func (t *transaction[T]) sendOrMake(ctx context.Context, made *parents) ([]Created[T], error) {
	for {
		created, missing, err := t.send(ctx, made)
		if len(missing) == 0 {
			return created, err
		}
		if err := made.makeAll(ctx, missing); err != nil {
			return nil, err
		}
	}
}

// send sends the transaction and the lists. missing are the directories whose lack is the reason for the error.
func (t *transaction[T]) send(ctx context.Context, made *parents) (created []Created[T], missing []string, err error) {
	s := t.s
	if err := made.learnBeforeHolds(ctx, t.plans[0].Dir); err != nil {
		return nil, nil, err
	}
	c, lists := t.requests()
	all := slices.Compact(slices.Clone(lists))
	birth := Birth{After: s.clock.Now()}
	if err := beginAllBehind(ctx, s, c, all...); err != nil {
		return nil, nil, err
	}
	t.latest, created = c, make([]Created[T], len(t.plans))
	for _, p := range t.plans {
		p.Reservation.MarkSent()
	}
	for i, list := range lists {
		if i > 0 && list == lists[i-1] {
			created[i].List = created[i-1].List
			continue
		}
		children, err := list.wait(ctx) // first, because the lists follow the other answer
		if err == nil {
			created[i].List = children
		} else if errors.Is(err, zk.ErrNoNode) {
			missing = append(missing, t.plans[i].Dir)
		}
	}
	a, err := c.wait(ctx)
	if err == nil && (len(a.Created) != len(t.plans) || a.IsUncommitted) { // otherwise the zxid is no czxid
		err = errUnusable
	}
	if t.isUncertain = t.isUncertain || zkutil.IsUnanswered(err) && !c.isAbandoned; err != nil {
		return nil, t.missingOf(a, err, missing), err
	}
	birth.Before = s.clock.Now()
	token, owner := a.Zxid, c.flight.ticket.id
	isLater := slices.ContainsFunc(all, func(l *pendingList[T]) bool { return l.isUnchangedSince(token) })
	if isLater || c.flight.ticket.isBound { // on servers that resume no session, the zxid is untested
		token, owner = 0, 0 // the caller reads each znode
	}
	for i, path := range a.Created {
		made := &created[i]
		made.Path, made.Token, made.Owner, made.Epoch, made.Birth = path, token, owner, c.flight.ticket.epoch, birth
	}
	return created, nil, nil
}

// missingOf returns the directories whose lack is the reason for an error: missing, which the lists did not find, or else that of the refused
// part.
func (t *transaction[T]) missingOf(a wire.Answer, err error, missing []string) []string {
	switch isPart := a.Refused >= 0 && a.Refused < len(t.plans); {
	case !errors.Is(err, zk.ErrNoNode):
		return nil
	case len(missing) == 0 && isPart: // the list failed, or another client made the directory since
		return []string{t.plans[a.Refused].Dir}
	default:
		return missing
	}
}

// requests returns the transaction, and for each of its znodes the list of the directory. Neighbours in one directory share a list.
func (t *transaction[T]) requests() (*call, []*pendingList[T]) {
	c := &call{Request: wire.Request{Op: proto.OpMulti, ACL: t.acl, Flags: zk.FlagEphemeralSequential}}
	wasUncertain := t.isUncertain
	c.undo = func(ctx context.Context, a wire.Answer) { t.undo(ctx, c, a, wasUncertain) }
	if t.given != nil {
		c.Removes, c.taker = []string{t.given.path}, t.given
	}
	lists := make([]*pendingList[T], len(t.plans))
	for i, p := range t.plans {
		c.Creates = append(c.Creates, wire.Creation{Path: strings.TrimSuffix(p.Dir, "/") + "/" + t.znodes[i].name() + p.Prefix, Data: p.Data})
		if key := (listKey{p.Dir, p.Prefix}); i > 0 && key == lists[i-1].key {
			lists[i] = lists[i-1]
		} else {
			lists[i] = &pendingList[T]{s: t.s, key: key, parse: p.Parse}
		}
	}
	return c, lists
}

// removeAll removes the znodes that a transaction without an answer may have created. It waits for the removal as a Leave does, because
// the caller could otherwise wait behind a znode of its own.
func (t *transaction[T]) removeAll(ctx context.Context) {
	var pending leftovers.List
	tracked := leftovers.With(ctx, &pending)
	for _, znode := range t.znodes {
		znode.departure.Begin()
		t.s.CleanUp(tracked, znode.removeAll)
	}
	beganAt := time.Now()
	for _, done := range pending.Pending() {
		if t.s.awaitDeletion(done, ctx.Done(), beganAt, t.s.WhyUnavailable) != nil {
			return // the removal continues in the background
		}
	}
}

// undo undoes a transaction after its caller gave up. Each znode has a task of its own, because a deletion may be refused for long. If the
// transaction, or an earlier one, may have taken effect unseen, the znodes are searched for.
func (t *transaction[T]) undo(ctx context.Context, c *call, a wire.Answer, wasUncertain bool) {
	if a.Err != nil && wasUncertain {
		a.Err = errUnusable
	}
	for i, znode := range t.znodes {
		own := wire.Answer{Err: a.Err}
		switch {
		case a.Err != nil:
		case len(a.Created) != len(t.znodes):
			own.Err = errUnusable
		default:
			own.Path, own.Stat.EphemeralOwner = a.Created[i], c.flight.ticket.id
		}
		t.s.CleanUp(ctx, func(ctx context.Context) { znode.undo(ctx, own) })
	}
}

// RemoveTogether is RemoveLater for several znodes, by one transaction.
func (s *Session) RemoveTogether(paths []string) (removed []Leaving) {
	var batch leavings
	s.mu.Lock()
	for _, path := range paths {
		r := newRemovalLocked(s, path, s.core.ID)
		batch.removals = append(batch.removals, r)
		removed = append(removed, Leaving{removal: r, beganAt: time.Now()})
	}
	s.mu.Unlock()
	batch.begin()
	return removed
}

// LeaveTogether is BeginLeave for several entries. All contexts end before the first deletion is sent. The znodes of one session are deleted
// by one transaction.
func LeaveTogether(entries ...*Entry) (left []Leaving) {
	var batch leavings
	for _, e := range entries {
		left = append(left, e.beginLeave(zkutil.ErrReleased, zkutil.ErrReleased, &batch))
	}
	batch.begin()
	return left
}

// leavings is the rest of a LeaveTogether after all entries left.
type leavings struct {
	removals []*removal
	traced   []*trace.Acquisition
}

// begin sends the deletions, by one transaction for each session and maxTogether znodes, and then calls the hooks. The paths fit into
// a frame, because the budget bounds those of a session.
func (b *leavings) begin() {
	for rest := b.removals; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r *removal) bool { return r.s != rest[0].s })
		if n < 0 {
			n = len(rest)
		}
		n = min(n, maxTogether)
		removals(rest[:n]).begin()
		rest = rest[n:]
	}
	for _, a := range b.traced {
		a.CallLeaseEnd()
	}
}

// removals are removals by one transaction.
type removals []*removal

func (rs removals) begin() {
	s := rs[0].s
	s.mu.Lock()
	if len(rs) == 1 || !s.core.IsConnected || s.link.conn == nil || s.core.Phase >= core.Sealed {
		s.mu.Unlock()
		for _, r := range rs {
			r.begin()
		}
		return
	}
	t := s.gate.admitLocked(1)
	s.mu.Unlock()
	c := &call{Request: wire.Request{Op: proto.OpMulti}, taker: rs}
	for _, r := range rs {
		c.Removes = append(c.Removes, r.path)
	}
	s.gate.sendAdmitted(t, c)
}

// takeLocked takes the answer to the transaction of begin. A refusal may concern a single znode, for example because it was deleted. Then
// the transaction deleted nothing, and each removal continues on its own.
func (rs removals) takeLocked(c *call, a wire.Answer) {
	for _, r := range rs {
		if zkutil.IsRefused(a.Err) {
			r.goOnLocked(nil)
		} else {
			r.takeLocked(c, a)
		}
	}
}
