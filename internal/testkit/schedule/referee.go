package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// referee follows every lease of a schedule and records violations. Where possible, the referee asks the server, not the library.
type referee struct {
	recipe  Recipe
	srv     *zktest.Server
	timeout time.Duration
	began   time.Time

	mu         sync.Mutex // protects the fields below
	heldLeases []*heldLease
	tokens     judge.Tokens[*heldLease]
	holders    judge.Holders[*heldLease]
	store      judge.Store          // the resource that the lock guards
	proven     map[int64]time.Time  // time of each session's latest write
	expired    map[int64]bool       // sessions ended by force
	clients    map[int64]*contender // by all their sessions so far
	deleted    map[string]time.Time // znodes deleted by force, with the time of deletion
	isolated   map[string]bool      // servers cut off from the quorum
	revoked    map[string]time.Time // znodes whose owners were asked to release the lock, with the time of the request
	head       string               // the first contender at the latest check
	headFrom   time.Time            // the time since when head has been first
	history    []string
	faults     []string
}

// heldLease is one lease of a contender, from grant to end.
type heldLease struct {
	c        *contender
	lock     int // see step
	lease    *recipes.Lease
	outer    *heldLease // the exclusive lease under which this shared lease was acquired
	at       time.Time
	session  int64 // 0: the lease had ended when granted
	released bool  // or about to be
	over     bool
	overAt   time.Time
}

func newReferee(recipe Recipe, srv *zktest.Server, timeout time.Duration) *referee {
	return &referee{
		recipe: recipe, srv: srv, timeout: timeout, began: time.Now(),
		proven: map[int64]time.Time{}, expired: map[int64]bool{}, clients: map[int64]*contender{},
		deleted: map[string]time.Time{}, isolated: map[string]bool{}, revoked: map[string]time.Time{},
	}
}

// recordLocked adds an event to the report.
func (j *referee) recordLocked(format string, args ...any) {
	j.history = append(j.history, fmt.Sprintf("%12v ", time.Since(j.began))+fmt.Sprintf(format, args...))
}

// reportFaultLocked records a violation.
func (j *referee) reportFaultLocked(format string, args ...any) {
	j.recordLocked("FAULT: "+format, args...)
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// reportFault is reportFaultLocked for callers that don't hold j.mu.
func (j *referee) reportFault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reportFaultLocked(format, args...)
}

// verdict returns the violations and the history, or "" if there are no violations.
func (j *referee) verdict() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.faults) == 0 {
		return ""
	}
	return strings.Join(j.faults, "\n") + "\n\nhistory:\n" + strings.Join(j.history, "\n")
}

// excuseLocked returns the excuse of a lease. With an excuse, fencing decides.
func (j *referee) excuseLocked(t *heldLease) judge.Excuse {
	_, isDeleted := j.deleted[t.lease.Path()]
	switch {
	case isDeleted:
		return judge.ZnodeDeleted
	case j.expired[t.session]:
		return judge.SessionExpired
	case t.session == 0:
		return judge.OverAtGrant
	default:
		return judge.None
	}
}

// isValid reports whether the holder may believe that it holds the lock.
func (t *heldLease) isValid() bool {
	return t.lease.Context().Err() == nil && time.Now().Before(t.lease.TrustedUntil())
}

// holds is isValid for a lease that is not over.
func (t *heldLease) holds() bool { return !t.over && t.isValid() }

// granted checks a lease that has just been granted.
func (j *referee) granted(c *contender, lock int, lease *recipes.Lease, outer *heldLease) *heldLease {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, stat, there := j.srv.Get(lease.Path())
	t := &heldLease{c: c, lock: lock, lease: lease, outer: outer, at: time.Now(), session: stat.EphemeralOwner}
	j.recordLocked("%s: granted %s, trusted until %v", c, lease.Path(), lease.TrustedUntil().Sub(j.began))
	gone, deleted := j.deleted[lease.Path()]
	switch {
	case there && deleted: // a second znode of the same name, created after the directory was reaped
		delete(j.deleted, lease.Path())
	case deleted && j.hasKnownLocked(c, gone) && (!j.recipe.hasCohorts() || j.mustHaveEndedLocked(c, gone)):
		j.reportFaultLocked("%s: granted %s, which was deleted %v before", c, lease.Path(), time.Since(gone))
	case !there && !deleted && t.isValid() && (!j.recipe.hasCohorts() || !j.expired[c.client.Conn().SessionID()]):
		j.reportFaultLocked("%s: granted %s, which does not exist", c, lease.Path())
	}
	isTrusted := t.isValid() // read before the context, because the lease may end at any time
	if there && j.excuseLocked(t) == judge.None && lease.Context().Err() == nil {
		if !isTrusted {
			j.reportFaultLocked("%s: granted after the end of trust", c)
		}
		j.checkGrantLocked(t, stat.Czxid)
	}
	beside := j.holders.Grant(t, func(before *heldLease) bool { return before.holds() })
	beside = slices.DeleteFunc(beside, func(other *heldLease) bool { return j.excuseLocked(other) != judge.None || !j.excludes(t, other) })
	if len(beside) >= max(1, j.recipe.Limit) && t.isValid() && j.excuseLocked(t) == judge.None {
		j.reportFaultLocked("%s and %s hold the lock, and %d others", beside[0].c, c, len(beside)-1)
	}
	j.followLocked(t)
	return t
}

// hasKnownLocked reports whether a client must have noticed an event at time at: at the latest when its trouble is over, or
// when zk.Conn gives up a silent connection, after 2T/3. The engine notices sooner, but not while it holds nothing and a write
// is in flight, perhaps a lost write: the reason for the silence may be a slow quorum.
func (j *referee) hasKnownLocked(c *contender, at time.Time) bool {
	silence := time.Since(at)
	return silence > 0 && (c.calmFrom.Before(time.Now()) || silence > j.timeout*2/3) && !j.isCutOffLocked(c)
}

// mustHaveEndedLocked reports whether a hold that a client passes on can't have outlasted an event at time at: trust has ended
// since, or a heartbeat has been answered.
func (j *referee) mustHaveEndedLocked(c *contender, at time.Time) bool {
	return time.Since(zkutil.Latest(at, c.calmFrom)) > j.timeout*2/3
}

// isCutOffLocked reports whether the client may be connected to an isolated server.
func (j *referee) isCutOffLocked(c *contender) bool {
	return slices.ContainsFunc(c.servers, func(server string) bool { return j.isolated[server] })
}

// checkGrantLocked compares a lease whose znode exists with the state of the server.
func (j *referee) checkGrantLocked(t *heldLease, czxid int64) {
	token, path := t.lease.FencingToken(), t.lease.Path()
	if t.outer != nil {
		czxid = t.outer.lease.FencingToken()
	}
	if token != czxid {
		j.reportFaultLocked("%s: token %d, but czxid %d", t.c, token, czxid)
	}
	if t.session != t.c.client.Conn().SessionID() {
		j.reportFaultLocked("%s: granted a znode of another session", t.c)
	}
	if ahead := j.aheadLocked(path); ahead != "" {
		j.reportFaultLocked("%s: granted %s, but %s is ahead", t.c, path, ahead)
	}
	// Readers that hold the lock together may have been granted in any order.
	highest := j.tokens.Highest()
	if before, grows := j.tokens.Grant(token, t); !grows && j.isExclusive(t) && (token != highest || !j.isPass(before, t)) {
		j.reportFaultLocked("%s: token %d after %d", t.c, token, before.lease.FencingToken())
	}
}

// isPass reports whether a lease follows another lease of its client on the same znode, by Release.
func (j *referee) isPass(before, t *heldLease) bool {
	return j.recipe.hasCohorts() && before.c == t.c && before.lease.Path() == t.lease.Path() &&
		errors.Is(context.Cause(before.lease.Context()), recipes.ErrReleased)
}

// inherited records a lease that re-entered, and that may outlast the earlier lease.
func (j *referee) inherited(from *heldLease, lease *recipes.Lease) *heldLease {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := &heldLease{c: from.c, lock: from.lock, lease: lease, at: from.at, session: from.session}
	if lease.FencingToken() != from.lease.FencingToken() || lease.Path() != from.lease.Path() {
		j.reportFaultLocked("%s: re-entered %s and got %s", t.c, from.lease.Path(), lease.Path())
	}
	j.followLocked(t)
	return t
}

// followLocked calls ended at the end of a lease.
func (j *referee) followLocked(t *heldLease) {
	j.heldLeases = append(j.heldLeases, t)
	j.checkTrust(t)
	context.AfterFunc(t.lease.Context(), func() { j.ended(t) })
}

func (j *referee) isExclusive(t *heldLease) bool { return t.lock == exclusive && j.recipe.Limit == 0 }

func (j *referee) isShared(path string) bool {
	return j.recipe.IsShared != nil && j.recipe.IsShared(path)
}

// excludes reports whether two leases may not be held together. A shared lease may be held beside the exclusive lease under
// which it was acquired, whose token it has.
func (j *referee) excludes(a, b *heldLease) bool {
	return j.recipe.Limit > 0 || (a.lock == exclusive || b.lock == exclusive) && (j.recipe.IsShared == nil || a.lease.FencingToken() != b.lease.FencingToken())
}

// deadlineLocked returns until when a session's latest write proves the session.
func (j *referee) deadlineLocked(session int64) time.Time {
	return j.proven[session].Add(j.timeout * 2 / 3)
}

// checkTrust checks that only a write is trusted, and only for 2T/3 after it was sent. Called under j.mu.
func (j *referee) checkTrust(t *heldLease) {
	latest := j.deadlineLocked(t.session)
	if until := t.lease.TrustedUntil(); t.session != 0 && until.After(latest) {
		j.reportFaultLocked("%s: trusts %s until %v, the last write says %v", t.c, t.lease.Path(), until.Sub(j.began), latest.Sub(j.began))
	}
}

// ended checks why and when a lease has ended.
func (j *referee) ended(t *heldLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.over, t.overAt = true, time.Now()
	cause := context.Cause(t.lease.Context())
	j.recordLocked("%s: lease ended: %v", t.c, cause)
	j.checkPrompt(t)
	if t.session == 0 {
		return
	}
	j.checkTrust(t)
	switch {
	case errors.Is(cause, recipes.ErrReleased):
		if !t.released {
			j.reportFaultLocked("%s: nobody has released the lease", t.c)
		}
		return
	case errors.Is(cause, recipes.ErrSessionLost):
		j.checkLossLocked(t)
	case errors.Is(cause, recipes.ErrNodeDeleted):
		if j.excuseLocked(t) == judge.None {
			j.reportFaultLocked("%s: nobody has deleted the znode", t.c)
		}
	case errors.Is(cause, recipes.ErrSuspended) && t.c.plan.standard:
	case errors.Is(cause, recipes.ErrMaxHold) && j.recipe.MaxHold > 0:
		if held := time.Since(t.at); held > j.recipe.MaxHold {
			j.reportFaultLocked("%s: held for %v", t.c, held)
		}
		return
	case errors.Is(cause, recipes.ErrClosed) && t.c.closing:
		return
	default:
		j.reportFaultLocked("%s: lease ended with %v", t.c, cause)
	}
	if !t.c.troubled && j.excuseLocked(t) == judge.None {
		j.reportFaultLocked("%s: a client without any trouble has lost its lease: %v", t.c, cause)
	}
}

// checkLossLocked checks that the lease ended before the server could grant the lock to another client, and that the lease was
// trusted when granted.
func (j *referee) checkLossLocked(t *heldLease) {
	if j.excuseLocked(t) != judge.None {
		return
	}
	if _, alive := j.srv.Session(t.session); !alive {
		j.reportFaultLocked("%s: heard of the loss after the server had expired the session", t.c)
	}
	// Where a session ends with its connection, a disconnect right after the grant ends the lease in the same instant.
	isCut := j.recipe.Dialect == zktest.ClickHouseKeeper && t.lease.TrustedUntil().Equal(t.at)
	if !t.lease.TrustedUntil().After(t.at) && !isCut {
		j.reportFaultLocked("%s: granted %v after the end of trust", t.c, t.at.Sub(t.lease.TrustedUntil()))
	}
}

// checkPrompt checks that a lease has ended at its deadline, or when the client could notice the deletion of its znode. A
// connection that is lost again at once may prove the session and yet not report the deletion. Called under j.mu.
func (j *referee) checkPrompt(t *heldLease) {
	if late := time.Since(j.deadlineLocked(t.session)); t.session != 0 && late > 0 {
		j.reportFaultLocked("%s: lease ended %v after its deadline", t.c, late)
	}
	if gone, ok := j.deleted[t.lease.Path()]; ok && time.Since(gone) > 2*j.timeout {
		j.reportFaultLocked("%s: lease ended %v after its znode", t.c, time.Since(gone))
	}
}
