package chaos

import (
	"cmp"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// rivals is the number of subsequent leases that a hold is compared with, because a record may be late.
const rivals = 50

// handover is the time that the goroutine that records the end of a context may need. A release took place between
// the call and that record, which is late if it follows the next grant.
const handover = int64(150 * time.Millisecond)

// ended is the earliest possible end of the hold's context. If the holder's own delete removed the znode, it was sent
// after the end.
func (hold *Hold) ended() int64 {
	switch {
	case hold.Cause == byShutdown && hold.Life != nil && hold.Life.End == Expired: // a function that winds down is not notified
		return cmp.Or(hold.Releasing, hold.Ended)
	case hold.Life != nil && hold.Life.End == Expired:
	case hold.Cause == killClient && hold.Releasing != 0: // killed before its record
		return min(hold.Releasing, hold.Ended)
	case hold.Cause == recipes.ErrReleased.Error() && hold.Releasing != 0:
		return max(hold.Releasing, hold.Ended-handover)
	case hold.Cause == recipes.ErrSessionLost.Error() && hold.Life != nil && hold.Life.End == Deleted:
		return max(hold.Granted, hold.Ended-handover)
	}
	return hold.Ended
}

// terms judges exclusion and the order of the tokens, which is that of the queue.
func (v *Verdict) terms(h *History, path string, holds []*Hold) {
	record := make([]judge.Term, len(holds))
	for i, hold := range holds {
		record[i] = judge.Term{Token: hold.Token, From: time.Duration(hold.Granted), To: time.Duration(hold.ended())}
		if hold.Ended == 0 {
			record[i].To = judge.Open
		}
	}
	for _, breach := range judge.Terms(record, rivals) {
		v.breach(h, path, breach, holds[breach.Before], holds[breach.Next])
	}
}

// breach is a violation without an excuse.
func (v *Verdict) breach(h *History, path string, breach judge.Breach, before, next *Hold) {
	excuse := judge.None
	switch breach.Rule {
	case judge.Order:
		excuse = h.excuseLateGrant(next, before)
	case judge.Exclusion:
		if next.Token < before.Token {
			return // a breach of the order
		}
		excuse = h.excuse(before, next.Granted)
	default:
	}
	switch {
	case excuse != judge.None:
		v.Excused[excuse]++
	case breach.Rule == judge.Ends:
		v.violation(next.Granted, path, "%s: the context of %s, token %d, has not ended", path, next.By, next.Token)
	case breach.Rule == judge.OneToken:
		v.violation(next.Granted, path, "%s: token %d was given twice, to %s and %s", path, next.Token, before.By, next.By)
	case breach.Rule == judge.Order:
		v.violation(before.Granted, path, "%s: %s has token %d %v before %s has %d", path, before.By, before.Token,
			breach.By, next.By, next.Token)
	default:
		v.violation(next.Granted, path, "%s: %s, token %d, is granted %v before the context of %s, token %d, ends (%s)", path,
			next.By, next.Token, breach.By, before.By, before.Token, before.Cause)
	}
}

// ends records how the leases ended. A lease and its re-entries share one token.
func (v *Verdict) ends(path string, holds []*Hold) {
	for _, hold := range holds {
		if hold.Ended == 0 {
			continue
		}
		v.Causes[hold.Cause]++
		if hold.innerToken != 0 && hold.innerToken != hold.Token {
			v.violation(hold.Granted, path, "%s: %s has token %d, and %d when it acquires again", path, hold.By, hold.Token, hold.innerToken)
		}
	}
}

// distances notes how long before the next grants the leases ended.
func (v *Verdict) distances(h *History, holds []*Hold) {
	for i, hold := range holds {
		if hold.Ended == 0 {
			continue
		}
		for _, next := range holds[i+1 : min(len(holds), i+1+rivals)] {
			distance := next.Granted - hold.ended()
			if distance < 0 {
				continue // see terms
			}
			if next.Granted < hold.Ended {
				v.Excused[judge.RecordedLate]++
			}
			v.near(h, hold, time.Duration(distance))
		}
	}
}

// near notes how long before the next grant a context ended whose session expired.
func (v *Verdict) near(h *History, hold *Hold, distance time.Duration) {
	lost := hold.Life != nil && hold.Life.End == Expired && hold.Cause == recipes.ErrSessionLost.Error()
	if lost && (v.Nearest == 0 || distance < v.Nearest) && h.excuse(hold, hold.Ended) == judge.None {
		v.Nearest = distance
	}
}
