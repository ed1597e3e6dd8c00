package session

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// MaxExchange returns how many contenders with the plan's data an Exchange may create.
func MaxExchange[T any](ctx context.Context, s *Session, plan Planned[T]) int {
	t := transaction[T]{acl: s.aclOf(ctx)}
	return max(1, min(maxTogether-1, maxTogetherBytes/t.sizeOf(plan)))
}

// Exchange is CreateTogether for contenders in one directory, in exchange for a hold of this session: the transaction also deletes the znode
// of held, and held then ends without a loss. After a lost answer the transaction is sent again. Of several such transactions only one can
// delete the znode, so that no contender has a twin. If the znode is deleted, a search shows whether an earlier transaction took effect.
//
// On servers that resume no session (ClickHouse Keeper), token and owner are unknown, as after a search.
//
// If Exchange fails, no contender is left, or each is being deleted in the background. held may have ended, and the caller has to leave it. An
// error that matches ErrContenderLost means that held was lost.
func Exchange[T any](ctx context.Context, s *Session, held *Entry, plans []Planned[T]) ([]Created[T], error) {
	t := transaction[T]{s: s, plans: plans, acl: s.aclOf(ctx), given: held.hold}
	if err := t.begin(); err != nil {
		return nil, err
	}
	made := &parents{s: s}
	created, err := Repeat(ctx, s, func() ([]Created[T], error) {
		err := t.given.expectDeletion()
		if err == nil {
			var created []Created[T]
			if created, err = t.sendOrMake(ctx, made); !errors.Is(err, zk.ErrNoNode) {
				return created, err
			}
			err = zkutil.ContenderLost(zkutil.ErrNodeDeleted)
		}
		if found, failure := t.search(ctx); failure != nil || found != nil { // an earlier transaction may have deleted the znode
			return found, failure
		}
		return nil, err
	})
	return created, t.end(ctx, made, created, err)
}

// search returns the contenders if an earlier transaction without an answer took effect, and nil if none did.
func (t *transaction[T]) search(ctx context.Context) ([]Created[T], error) {
	if !t.isUncertain {
		return nil, nil
	}
	dir := t.plans[0].Dir
	children, err := t.s.listSynced(ctx, dir)
	if err != nil {
		return nil, err
	}
	var created []Created[T] // with the path alone
	for _, znode := range t.znodes {
		for _, child := range children {
			if strings.HasPrefix(child, znode.name()) {
				created = append(created, Created[T]{Path: zkutil.Join(dir, child)})
			}
		}
	}
	if len(created) > 0 && len(created) < len(t.znodes) { // some are deleted since
		return nil, zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	return created, nil
}

// expectDeletion prepares a hold for the transaction of an Exchange. From then on a deletion of its znode ends the hold as if its owner had
// left. An error means that the hold has ended.
func (h *Hold) expectDeletion() error {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.core.Cause != nil {
		return zkutil.ContenderLost(h.core.Cause)
	}
	h.core.ExpectDeletion()
	delete(s.keeper.nodes, h.path) // no heartbeat behind the transaction may check the znode
	return nil
}
