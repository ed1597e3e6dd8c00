package election_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// judge looks at everything that was recorded. By now every term has ended.
func (f *fixture) judge(t *testing.T) {
	t.Helper()
	f.judgeTerms(t)
	f.judgeWrites(t)
	f.report(t)
}

// blind reports whether somebody else has ended a term at the server.
func (f *fixture) blind(r *seenTerm) bool {
	_, _, isHarmed := f.log.harm(r)
	return isHarmed
}

// judgeTerms: no two at once, and tokens grow.
func (f *fixture) judgeTerms(t *testing.T) {
	t.Helper()
	terms := f.log.terms // in the order in which they began
	record := make([]judge.Term, len(terms))
	for i, r := range terms {
		record[i] = judge.Term{Token: r.lease.FencingToken(), From: r.began.Sub(terms[0].began), To: r.over().Sub(terms[0].began)}
		if r.ended.IsZero() {
			record[i].To = judge.Open
		}
		for _, rival := range r.rivals {
			require.True(t, f.isBlind(rival) || f.harmedBefore(r, rival.answered), "%s says that it leads beside %s", rival.who.id, r)
		}
	}
	for _, breach := range judge.Terms(record, 0) {
		before, next := terms[breach.Before], terms[breach.Next]
		excused := f.blind(before)
		if breach.Rule != judge.Exclusion {
			excused = f.blind(next) && breach.Rule != judge.Ends
		}
		require.True(t, excused, "%v: %s, ended as %v, and %s; meanwhile: %v", breach, before, before.cause, next, f.changesBetween(before.began, next.began))
	}
}

// changesBetween are those that were forced in a span of time, and the one before them.
func (f *fixture) changesBetween(from, to time.Time) []change {
	after := func(at time.Time) int {
		i := slices.IndexFunc(f.changes, func(c change) bool { return c.began.After(at) })
		if i < 0 {
			return len(f.changes)
		}
		return i
	}
	return f.changes[max(after(from)-1, 0):after(to)]
}

// isBlind reports whether a sighting is that of a term that somebody else has ended: of the first one of the contender that had
// not ended before. Its work may have begun a little later than it was seen.
func (f *fixture) isBlind(s sighting) bool {
	i := slices.IndexFunc(f.log.terms, func(r *seenTerm) bool { return r.by == s.who && !r.ended.Before(s.asked) })
	return i >= 0 && f.blind(f.log.terms[i]) && f.log.terms[i].began.Before(s.answered.Add(slack))
}

// harmedBefore reports whether somebody else had begun to end the term itself before an instant: then the next leader may be
// there already.
func (f *fixture) harmedBefore(r *seenTerm, at time.Time) bool {
	from, _, isHarmed := f.log.harm(r)
	return isHarmed && from.Before(at)
}

// judgeWrites: ZooKeeper has taken none with a lower token than the one before, and refused those of whoever had lost.
func (f *fixture) judgeWrites(t *testing.T) {
	t.Helper()
	slices.SortFunc(f.store.written, func(x, y inZxid) int { return cmp.Compare(x.zxid, y.zxid) })
	var inOrder judge.Store
	for _, write := range f.store.written {
		require.True(t, inOrder.Write(write.token), "ZooKeeper has taken token %#x after %#x", write.token, inOrder.Highest())
	}
	for _, c := range f.changes {
		// A term of the session that followed an expired one counts as harmed, too, if it began before the attacker had its answer.
		// Its znode still stood at the last write, so it is judged like all other terms.
		_, gone, blind := f.log.harm(c.old)
		if blind && (c.old.ended.Before(gone) || errors.Is(c.old.last.err, zk.ErrNoNode)) { // by this change, or just before it
			continue
		}
		require.True(t, c.old.last.claimed, "%s: the last write of %s, ended as %v", c.kind.name, c.old, c.old.cause)
		if !errors.Is(c.old.cause, recipes.ErrSessionLost) { // then the znode is there while the work runs
			require.NoError(t, c.old.last.err, "%s: the last write of %s, ended as %v", c.kind.name, c.old, c.old.cause)
		}
	}
}

// report says how long there was no leader, and how long there were two, by the kind of change.
func (f *fixture) report(t *testing.T) {
	t.Helper()
	for _, k := range kinds {
		var took, overlaps []time.Duration
		other := map[string]int{}
		for _, c := range f.changes {
			if c.kind.name != k.name {
				continue
			}
			took = append(took, c.took)
			if overlap := c.old.ended.Sub(c.next.began); overlap > 0 {
				overlaps = append(overlaps, overlap)
			}
			if !errors.Is(c.old.cause, k.cause) {
				other[c.old.cause.Error()]++
			}
		}
		line := []string{fmt.Sprintf("%-21s %3d times, next leader after %v", k.name, len(took), spread(took))}
		if k.blind {
			line = append(line, fmt.Sprintf("%d overlaps of %v", len(overlaps), spread(overlaps)))
		}
		if len(other) > 0 {
			line = append(line, fmt.Sprint("ended for another reason: ", other))
		}
		t.Log(strings.Join(line, "; "))
	}
}

// spread says median and maximum.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	return fmt.Sprintf("%v (median), %v (max)", times[len(times)/2].Round(10*time.Microsecond), times[len(times)-1].Round(10*time.Microsecond))
}
