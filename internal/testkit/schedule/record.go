package schedule

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// harm records that a session is about to be expired, or that znodes are about to be deleted, by force.
func (j *referee) harm(session int64, znodes ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if session != 0 {
		j.expired[session] = true
	}
	for _, znode := range znodes {
		if _, ok := j.deleted[znode]; !ok {
			j.deleted[znode] = time.Now()
		}
	}
}

// proof records when a session has sent a write.
func (j *referee) proof(session int64, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if at.After(j.proven[session]) {
		j.proven[session] = at
	}
}

// isolate records which servers can't write and are cut off from the others.
func (j *referee) isolate(servers []string, isolated bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, server := range servers {
		j.isolated[server] = isolated
	}
}

// executes reports whether the quorum commits a write. A write behind an unanswered request is not executed, but counts too,
// because the referee can't tell.
func (j *referee) executes(r zktest.Request, fault zktest.Fault) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.isolated[r.Server] && fault.Lost != zktest.RequestLost && fault.Lost != zktest.NoAnswer
}

// asked records a request to the owner of a znode to release the lock.
func (j *referee) asked(znode string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _, there := j.srv.Get(znode)
	if _, again := j.revoked[znode]; there && !again {
		j.revoked[znode] = time.Now()
	}
}

// write writes to the guarded resource, which refuses stale tokens, on behalf of a holder.
func (j *referee) write(t *heldLease) {
	connected := t.c.client.State() == recipes.Connected
	j.mu.Lock()
	defer j.mu.Unlock()
	token := t.lease.FencingToken()
	isCurrent := token >= j.store.Highest()
	if j.isExclusive(t) {
		isCurrent = j.store.Write(token)
	}
	if !isCurrent && t.isValid() && j.excuseLocked(t) == judge.None {
		j.reportFaultLocked("%s: holds the lock, but token %d is older than %d", t.c, token, j.store.Highest())
	}
	if t.c.plan.standard && !connected && t.lease.Context().Err() == nil {
		j.reportFaultLocked("%s: holds the lock while suspended", t.c)
	}
	// A revocation from before the grant is reported soon after the grant.
	if at, ok := j.revoked[t.lease.Path()]; ok && time.Since(zkutil.Latest(at, t.at)) > j.timeout+2*time.Second && t.isValid() {
		select {
		case <-t.lease.Revoked():
		default:
			j.reportFaultLocked("%s: has not heard of a revocation for %v", t.c, time.Since(at))
		}
	}
	j.checkTrust(t)
}

// releasing records that a lease may end at any time from now on.
func (j *referee) releasing(t *heldLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.released = true
}

// patrol reads the queue from time to time, until stop is closed: once the trouble of its client is over, the first contender
// must either hold the lock or be about to get or leave it.
func (j *referee) patrol(contenders []*contender, stop <-chan struct{}) {
	ticker := time.NewTicker(j.timeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			j.checkHead(contenders)
		case <-stop:
			return
		}
	}
}

func (j *referee) checkHead(contenders []*contender) {
	j.mu.Lock()
	defer j.mu.Unlock()
	head := j.first()
	if head != j.head {
		j.head, j.headFrom = head, time.Now()
	}
	since := j.headFrom
	if head == "" {
		return
	}
	_, stat, ok := j.srv.Get(head)
	if !ok {
		return
	}
	for _, t := range j.heldLeases {
		if t.lease.Path() == head && !t.over {
			return
		}
		if t.lease.Path() == head && j.recipe.hasCohorts() { // the znode may be passed on, or linger
			since = zkutil.Latest(since, t.overAt)
		}
	}
	for _, c := range contenders {
		isOwner := c.client.Conn().SessionID() == stat.EphemeralOwner
		if j.recipe.Dialect == zktest.ClickHouseKeeper { // the znodes of an old session stay until the client has another
			isOwner = isOwner || j.clients[stat.EphemeralOwner] == c
		}
		if isOwner && c.calmFrom.After(since) {
			since = c.calmFrom
		}
	}
	if idle := time.Since(since); idle > j.timeout*3/2+5*time.Second {
		j.reportFaultLocked("%s is the first in the queue for %v, and neither granted nor gone", head, idle)
		j.headFrom = time.Now() // one report is enough
	}
}
