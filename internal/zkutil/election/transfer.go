package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// transferPause is when to look again although nobody has come or gone: a request may have met another one, and not be written.
const transferPause = time.Second

// Transfer asks all candidates ahead of the candidate with an id to yield, and returns when that candidate is the first. The caller need not take
// part. If candidates of a higher priority are behind, the target is asked to stay, so that they do not ask the new leader to yield: unless
// a candidate without a priority stands directly behind the target of latches. Rivals behind such a candidate do not ask until it has left.
func Transfer(ctx context.Context, q *queue.Queue, id string) error {
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	for {
		target, err := findCandidate(ctx, q, id)
		if err != nil {
			return err
		}
		contenders, changed, err := q.ListAndWatch(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			continue // everybody has gone
		}
		if err != nil {
			return err
		}
		own := slices.IndexFunc(contenders, func(c queue.Contender) bool { return c.Name == target })
		if own > 0 { // otherwise the target is the first, or has lost its znode since it was found
			err = askAhead(ctx, q, contenders, own)
		}
		if err == nil && own != 0 {
			awaitEither(ctx, changed.Fired(), nil, transferPause)
			if ctx.Err() != nil {
				err = zkutil.EndOf(ctx)
			}
		}
		q.Session.ReleaseWatch(changed)
		if err != nil || own == 0 {
			return err
		}
	}
}

// findCandidate returns the name of the znode of the candidate with an id.
func findCandidate(ctx context.Context, q *queue.Queue, id string) (name string, err error) {
	participants, err := q.Participants(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range participants {
		if string(p.Data) != id {
			continue
		}
		if name != "" {
			return "", fmt.Errorf("%w: more than one has the id %q", zkutil.ErrNoCandidate, id)
		}
		_, name = zkutil.Split(p.Path)
	}
	if name == "" {
		return "", fmt.Errorf("%w: nobody has the id %q", zkutil.ErrNoCandidate, id)
	}
	return name, nil
}

// askAhead asks the contender at index own to stay if candidates of a higher priority are behind, and then those ahead to yield: first the
// waiting candidates, and the leader when nobody else is in between.
func askAhead(ctx context.Context, q *queue.Queue, contenders []queue.Contender, own int) error {
	target := contenders[own].Name
	for i, other := range contenders[:own] {
		if _, isSteered := other.Priority(); !isSteered {
			return fmt.Errorf("%w: %s", zkutil.ErrNotSteered, zkutil.Printable(other.Name))
		}
		if !mayWrite(q, contenders, i) { // because of the target
			return fmt.Errorf("%w: %s", zkutil.ErrNotSteered, zkutil.Printable(target))
		}
	}
	priority, isSteered := contenders[own].Priority()
	isRivalled := slices.ContainsFunc(contenders[own:], func(c queue.Contender) bool {
		theirs, _ := c.Priority()
		return theirs > priority
	})
	if isSteered && isRivalled && mayWrite(q, contenders, own) {
		last := contenders[len(contenders)-1].Name
		if err := request(ctx, q, contenders, own, queue.Yield{Kind: queue.Stay, Target: last}); err != nil {
			return explainRefusal(err, "stay", target)
		}
	}
	first := min(1, own-1) // the leader is asked once nobody else is ahead
	for i := own - 1; i >= first; i-- {
		if err := askToYield(ctx, q, contenders, i, target, queue.YieldToTransfer); err != nil {
			return explainRefusal(err, "yield", contenders[i].Name)
		}
	}
	return nil
}

// explainRefusal adds the refused request to an error of a candidate's ACL.
func explainRefusal(err error, what, name string) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("ask %s to %s: %w", zkutil.Printable(name), what, err)
	}
	return err
}
