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

// judge checks all records, after the end of every term.
func (f *fixture) judge(t *testing.T) {
	t.Helper()
	f.judgeTerms(t)
	f.judgeWrites(t)
	f.report(t)
}

// excuse returns the excuse of a term.
func (f *fixture) excuse(r *seenTerm) judge.Excuse {
	excuse, _, _ := f.log.harmTo(r)
	return excuse
}

// judgeTerms: no two terms overlap, and tokens grow.
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
			require.True(t, f.isExcused(rival) || f.harmedBefore(r, rival.answered), "%s says that it leads beside %s", rival.who.id, r)
		}
	}
	for _, breach := range judge.Terms(record, 0) {
		before, next := terms[breach.Before], terms[breach.Next]
		excuse := judge.None
		switch breach.Rule {
		case judge.Exclusion:
			excuse = f.excuse(before)
		case judge.Order, judge.OneToken:
			excuse = f.excuse(next)
		case judge.Ends:
		}
		require.NotEqual(t, judge.None, excuse, "%v: %s, ended as %v, and %s; meanwhile: %v", breach, before, before.cause, next, f.changesBetween(before.began, next.began))
	}
}

// changesBetween returns the forced changes in a span of time, and the previous one.
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

// isExcused reports whether a sighting belongs to an excused term: the contender's first term that was not over
// before. Its work may begin a little after the sighting.
func (f *fixture) isExcused(s sighting) bool {
	i := slices.IndexFunc(f.log.terms, func(r *seenTerm) bool { return r.by == s.who && !r.ended.Before(s.asked) })
	return i >= 0 && f.excuse(f.log.terms[i]) != judge.None && f.log.terms[i].began.Before(s.answered.Add(slack))
}

// harmedBefore reports whether a third party began to end the term before an instant, so that the next leader may already
// lead.
func (f *fixture) harmedBefore(r *seenTerm, at time.Time) bool {
	excuse, from, _ := f.log.harmTo(r)
	return excuse != judge.None && from.Before(at)
}

// judgeWrites: ZooKeeper accepted no write with a lower token than the previous one, and refused writes after a loss.
func (f *fixture) judgeWrites(t *testing.T) {
	t.Helper()
	slices.SortFunc(f.store.written, func(x, y inZxid) int { return cmp.Compare(x.zxid, y.zxid) })
	var inOrder judge.Store
	for _, write := range f.store.written {
		require.True(t, inOrder.Write(write.token), "ZooKeeper has taken token %#x after %#x", write.token, inOrder.Highest())
	}
	for _, c := range f.changes {
		// A term of the session after an expired one counts as harmed, too, if it began before the attacker got its answer. Its
		// znode still existed at the last write, so it is judged like all other terms.
		excuse, _, gone := f.log.harmTo(c.old)
		if excuse != judge.None && (c.old.ended.Before(gone) || errors.Is(c.old.last.err, zk.ErrNoNode)) { // by this change, or just before
			continue
		}
		require.True(t, c.old.last.claimed, "%s: the last write of %s, ended as %v", c.kind.name, c.old, c.old.cause)
		if !errors.Is(c.old.cause, recipes.ErrSessionLost) { // then the znode is there while the work runs
			require.NoError(t, c.old.last.err, "%s: the last write of %s, ended as %v", c.kind.name, c.old, c.old.cause)
		}
	}
}

// report prints how long there was no leader, and how long there were two, by the kind of change.
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
		line := []string{fmt.Sprintf("%-21s %3d times, next leader after %v", k.name, len(took), medianAndMost(took))}
		if k.excuse != judge.None {
			line = append(line, fmt.Sprintf("%d overlaps of %v", len(overlaps), medianAndMost(overlaps)))
		}
		if len(other) > 0 {
			line = append(line, fmt.Sprint("ended for another reason: ", other))
		}
		t.Log(strings.Join(line, "; "))
	}
}

// medianAndMost returns the median and the maximum as text.
func medianAndMost(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	return fmt.Sprintf("%v (median), %v (max)", times[len(times)/2].Round(10*time.Microsecond), times[len(times)-1].Round(10*time.Microsecond))
}
