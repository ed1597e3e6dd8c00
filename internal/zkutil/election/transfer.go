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

// transferPause is when to check again although no contender arrived or left, because another request may replace this one.
const transferPause = time.Second

// rejoinTime is how long a candidate may have no znode between two znodes, because it just yielded to another transfer.
const rejoinTime = 3 * time.Second

// Transfer asks all candidates ahead of the candidate with the given id to yield, and returns when that candidate is first. The
// caller need not take part. If candidates of a higher priority are behind, the target is asked to stay, so that they do not
// ask the new leader to yield: unless a candidate without a priority stands directly behind the target of latches. Rivals
// behind such a candidate do not ask until it left.
func Transfer(ctx context.Context, q *queue.Queue, id string) error {
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	tr := &transfer{q: q, pace: zkutil.Retry{InitialInterval: 10 * time.Millisecond, MaxInterval: transferPause}.Pace()}
	seenAt := time.Now()
	for {
		target, err := findCandidate(ctx, q, id)
		switch {
		case err == nil:
			seenAt = time.Now()
			if isFirst, err := tr.advance(ctx, target); isFirst || err != nil {
				return err
			}
		case errors.Is(err, zkutil.ErrNoCandidate) && time.Since(seenAt) < rejoinTime:
			zkutil.Pause(ctx, rejoinTime/10)
			if ctx.Err() != nil {
				return zkutil.EndOf(ctx)
			}
		default:
			return err
		}
	}
}

// transfer is one call of Transfer.
//
// Two transfers to different candidates would ask the target of the other one to yield, again and again, and the queue would
// turn round without end. So a target that was asked to yield is asked to stay from then on. The other transfer does not ask it
// until it leads, so the transfers are done one after the other. If the queue does not change meanwhile, the other transfer is
// abandoned.
type transfer struct {
	q           *queue.Queue
	pace        *zkutil.Pace
	target      string    // the name of its znode
	ahead       int       // how many contenders are ahead of it
	changedAt   time.Time // when target or ahead last changed
	isContested bool      // the target had to join again
}

// advance asks the contenders ahead of the target, and returns once the queue changes, or after transferPause.
func (tr *transfer) advance(ctx context.Context, target string) (isFirst bool, err error) {
	contenders, changed, err := tr.q.ListAndWatch(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil // no contender is left
	}
	if err != nil {
		return false, err
	}
	defer tr.q.Session.ReleaseWatch(changed)
	own := slices.IndexFunc(contenders, func(c queue.Contender) bool { return c.Name == target })
	if own <= 0 { // below 0 if the target lost its znode since it was found
		return own == 0, nil
	}
	if target != tr.target || own != tr.ahead {
		tr.isContested = tr.isContested || tr.target != "" && tr.target != target
		tr.target, tr.ahead, tr.changedAt = target, own, time.Now()
	}
	if err := tr.askAhead(ctx, contenders, own); err != nil {
		return false, err
	}
	pause, _ := tr.pace.Next() // random and growing, because the queue may change often
	zkutil.Pause(ctx, pause)
	awaitAny(ctx, transferPause, changed.Fired())
	if ctx.Err() != nil {
		return false, zkutil.EndOf(ctx)
	}
	return false, nil
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
			return "", fmt.Errorf("%w: several candidates have the id %q", zkutil.ErrNoCandidate, id)
		}
		_, name = zkutil.Split(p.Path)
	}
	if name == "" {
		return "", fmt.Errorf("%w: none has the id %q", zkutil.ErrNoCandidate, id)
	}
	return name, nil
}

// askAhead asks the contender at index own to stay if candidates of a higher priority are behind, or if it is contested, and then those
// ahead to yield: first the waiting candidates, and the leader when no other is in between.
func (tr *transfer) askAhead(ctx context.Context, contenders []queue.Contender, own int) error {
	q, target := tr.q, contenders[own].Name
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
	if isSteered && (isRivalled || tr.isContested) && mayWrite(q, contenders, own) {
		last := contenders[len(contenders)-1].Name
		if err := request(ctx, q, contenders, own, queue.Yield{Kind: queue.Stay, Target: last}, false); err != nil {
			return explainRefusal(err, "stay", target)
		}
	}
	first := min(1, own-1) // the leader is asked once no other candidate is ahead
	for i := own - 1; i >= first; i-- {
		isPatient := i > 0 && time.Since(tr.changedAt) < rejoinTime
		if err := request(ctx, q, contenders, i, queue.Yield{Kind: queue.YieldToTransfer, Target: target}, isPatient); err != nil {
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
