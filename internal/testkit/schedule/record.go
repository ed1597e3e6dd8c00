package schedule

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// taken notes that a session is about to be expired, or znodes deleted, by force.
func (j *referee) taken(session int64, znodes ...string) {
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

// proof notes that a session has sent a write.
func (j *referee) proof(session int64, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if at.After(j.proven[session]) {
		j.proven[session] = at
	}
}

// isolate notes which servers can't write and see no more of the others.
func (j *referee) isolate(servers []string, isolated bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, server := range servers {
		j.isolated[server] = isolated
	}
}

// executes tells whether the quorum commits a write. One that waits behind a request
// that gets no answer counts too, though it is not executed: nothing tells.
func (j *referee) executes(r zktest.Request, fault zktest.Fault) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.isolated[r.Server] && fault.Lost != zktest.RequestLost && fault.Lost != zktest.NoAnswer
}

// asked notes that the owner of a znode has been asked for the lock.
func (j *referee) asked(znode string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _, there := j.srv.Get(znode)
	if _, again := j.revoked[znode]; there && !again {
		j.revoked[znode] = time.Now()
	}
}

// write is what a holder does with the guarded resource, which refuses stale tokens.
func (j *referee) write(t *heldLease) {
	connected := t.c.client.State() == recipes.Connected
	j.mu.Lock()
	defer j.mu.Unlock()
	token := t.lease.FencingToken()
	isCurrent := token >= j.store.Highest()
	if j.isExclusive(t) {
		isCurrent = j.store.Write(token)
	}
	if !isCurrent && t.isValid() && !j.isExcusedLocked(t) {
		j.reportFaultLocked("%s: holds the lock, but token %d is older than %d", t.c, token, j.store.Highest())
	}
	if t.c.plan.standard && !connected && t.lease.Context().Err() == nil {
		j.reportFaultLocked("%s: holds the lock while suspended", t.c)
	}
	// A revocation from before the grant is told soon after that.
	if at, ok := j.revoked[t.lease.Path()]; ok && time.Since(zkutil.Latest(at, t.at)) > j.timeout+2*time.Second && t.isValid() {
		select {
		case <-t.lease.Revoked():
		default:
			j.reportFaultLocked("%s: has not heard of a revocation for %v", t.c, time.Since(at))
		}
	}
	j.checkTrust(t)
}

// releasing notes that a lease may end by itself from now on.
func (j *referee) releasing(t *heldLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.released = true
}

// patrol reads the queue from time to time, until stop is closed: when the trouble of its client is
// over, the first contender either holds the lock or is about to get or leave it.
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
	_, stat, ok := j.srv.Get(head)
	if head == "" || !ok {
		return
	}
	for _, t := range j.heldLeases {
		if t.lease.Path() == head && !t.over {
			return
		}
		if t.lease.Path() == head && j.recipe.hasCohorts() { // it may be passed on, or linger
			since = zkutil.Latest(since, t.overAt)
		}
	}
	for _, c := range contenders {
		if c.client.Conn().SessionID() == stat.EphemeralOwner && c.calmFrom.After(since) {
			since = c.calmFrom
		}
	}
	if idle := time.Since(since); idle > j.timeout*3/2+5*time.Second {
		j.reportFaultLocked("%s is the first in the queue for %v, and neither granted nor gone", head, idle)
		j.headFrom = time.Now() // once will do
	}
}
