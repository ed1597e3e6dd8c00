package chaos

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// inCohort holds the lock with the others of its process, and changes the row. One contender of every second process is
// not in the cohort.
func (c *contender) inCohort(ctx context.Context) error {
	opts := []mutex.Option{mutex.WithID(c.name)}
	if isAlone := c.Proc%2 == 0 && c.rand.IntN(3) == 0; !isAlone {
		opts = append(opts, mutex.WithCohort(mutex.Cohort{MaxPasses: 5, MaxTenure: 200 * time.Millisecond, Linger: 5 * time.Millisecond}))
	}
	m, err := mutex.New(c.client, c.path, opts...)
	if err != nil {
		return err
	}
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(15*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		var lease *recipes.Lease
		if !c.seek(ctx, last,
			func(ctx context.Context) (err error) { lease, err = m.Acquire(ctx); return err },
			func(ctx context.Context) (err error) { lease, err = m.TryAcquire(ctx); return err },
		) {
			last = false
			continue
		}
		c.took(lease)
		c.guard(ctx, lease) // all its requests are answered before the lease is passed on
		c.work(lease, 5*time.Millisecond)
		c.guard(ctx, lease)
		c.release(lease)
	}
	return ctx.Err()
}

// passes judges a lock that is passed on inside processes: no two leases overlap, tokens never decrease, and equal tokens
// follow each other by Release in one process, on one znode.
func (v *Verdict) passes(h *History, path string, holds []*Hold) {
	holds = slices.SortedFunc(slices.Values(holds), func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Granted, b.Granted))
	})
	record := make([]judge.Term, len(holds))
	for i, hold := range holds {
		record[i] = judge.Term{Token: int64(i + 1), From: time.Duration(hold.Granted), To: time.Duration(hold.passedOn())}
		if hold.Ended == 0 {
			record[i].To = judge.Open
		}
		if i > 0 && holds[i-1].Token == hold.Token && !holds[i-1].isFollowedBy(hold) {
			v.violation(hold.Granted, path, "%s: %s and %s have token %d, and the first did not release it (%s)", path, holds[i-1].By,
				hold.By, hold.Token, holds[i-1].Cause)
		}
	}
	for _, breach := range judge.Terms(record, rivals) {
		v.breach(h, path, breach, holds[breach.Before], holds[breach.Next])
	}
}

// passedOn is the earliest possible end of the lease. Unlike for a lease with its own znode, its Release says nothing about the
// end of the znode: the session may expire much later, under another lease.
func (hold *Hold) passedOn() int64 {
	if hold.Ended != 0 && hold.Cause == recipes.ErrReleased.Error() && hold.Releasing != 0 {
		return max(hold.Releasing, hold.Ended-handover)
	}
	return hold.ended()
}

// isFollowedBy reports whether a lease may have been passed on to the next one.
func (hold *Hold) isFollowedBy(next *Hold) bool {
	return hold.Proc == next.Proc && hold.Znode == next.Znode && hold.Cause == recipes.ErrReleased.Error()
}
